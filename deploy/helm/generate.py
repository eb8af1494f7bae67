"""Writes what is made of other files: the chart's schema of `config`, and the plain manifests.

    python generate.py QUORUMGATE [DIRECTORY]

QUORUMGATE is the binary, which says the schema of its configuration; DIRECTORY is deploy/ unless one is
given. The package helm-python-sdk is needed. A test does the same and compares byte for byte.
"""

import json
import pathlib
import re
import subprocess
import sys

from helm_python import Chart

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE / "quorumgate"

# What follows from the chart and is not to be said in `config`: it would be overwritten.
OWNED = {
    "AdminSection": ["listen"],
    "ClusterSection": ["node_id", "backend", "listen", "advertise", "seeds", "tls"],
    "QuorumSection": ["expected_members"],
    "ServerSection": ["listen", "tls"],
    "StateSection": ["file"],
}
# Kept by Helm, or for it; a digest that nobody renews would only mislead.
HELM_ONLY = re.compile(
    r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart|checksum/\w+): .*\n"
    r"|^ *annotations:\n *# [^\n]*\n *checksum/\w+: .*\n",
    re.MULTILINE,
)
HEAD = "# Made from deploy/helm/quorumgate with its own values by deploy/helm/generate.py.\n"


def for_helm(schema):
    """The same as Helm can read it, which knows no look-ahead and takes a bare off for false."""
    if isinstance(schema, list):
        return [for_helm(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: for_helm(value) for key, value in schema.items()}
    if "off" in schema.get("enum", []):
        schema["enum"] = [word for word in schema["enum"] if word is not False]
    if "pattern" in schema:
        schema["pattern"] = schema["pattern"].replace("(?=[0-9])", "")
    return schema


def definitions(schema):
    """The tables of the configuration, without what follows from the chart."""
    found = for_helm(schema["$defs"])
    for table, keys in OWNED.items():
        for key in keys:
            del found[table]["properties"][key]
        found[table]["required"] = [k for k in found[table].get("required", []) if k not in keys]
    found["File"]["required"] = schema["required"]
    return found


def values_schema(configuration):
    """The chart's schema: its own part as it stands, and the configuration's."""
    text = (CHART / "values.schema.json").read_text()
    own, _ = text.split('  "$defs": {\n')
    tables = definitions(configuration)
    lines = [f"    {json.dumps(name)}: {json.dumps(tables[name])}" for name in sorted(tables)]
    return own + '  "$defs": {\n' + ",\n".join(lines) + "\n  }\n}\n"


def manifests():
    """The plain manifests by file name."""
    with Chart.load(CHART) as chart:
        rendered = chart.render({}, name="quorumgate", namespace="quorumgate")
    for path, text in sorted(rendered.items()):
        if path.endswith(".yaml") and text.strip():
            yield path.rsplit("/", 1)[1], HEAD + HELM_ONLY.sub("", text).strip() + "\n"


def main(binary, directory=HERE.parent):
    directory = pathlib.Path(directory)
    said = subprocess.run([binary, "schema"], check=True, capture_output=True).stdout
    schema = directory / "helm/quorumgate/values.schema.json"
    schema.parent.mkdir(parents=True, exist_ok=True)
    schema.write_text(values_schema(json.loads(said)))
    (directory / "kubernetes").mkdir(exist_ok=True)
    for name, text in manifests():
        (directory / "kubernetes" / name).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
