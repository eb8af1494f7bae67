"""Renders a chart with many sets of values, and judges what comes out.

From stdin: {"chart": a path, "versions": [of Kubernetes], "sets": {name: values}}. To stdout, by name of the
set: "error", if Helm refuses it, or "found" by lint --strict, "documents" as objects, "invalid" sentences, and
"foreign" kinds, which are not Kubernetes' own and cannot be judged.
"""

import functools
import json
import sys

import kubernetes_validate
import yaml
from helm_python import Chart, HelmError, chart as helm

INFO = 1
# Written in C where the package has it, and ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def judgement(text, version):
    """What is invalid in a document, and its kind if it is foreign. Most are the same in many sets."""
    document = json.loads(text)
    name = f"{document['kind']} {document['metadata']['name']}"
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return [], [f"{document['apiVersion']} {document['kind']}"]
    except kubernetes_validate.ValidationError as error:
        return [f"{name} for {version}: {list(error.path)}: {error.message}"], []
    return [], []


def judged(documents, versions):
    found = [judgement(json.dumps(one), version) for one in documents for version in versions]
    invalid = [sentence for invalid, _ in found for sentence in invalid]
    return {"invalid": invalid, "foreign": sorted({kind for _, kinds in found for kind in kinds})}


def rendered(loaded, path, values, versions):
    try:
        files = loaded.render(values, name="quorumgate", namespace="somewhere")
    except HelmError as error:
        return {"error": str(error)}
    report = helm.lint(path, values, strict=True)
    found = [entry["error"] for entry in report["messages"] if entry["severity"] > INFO]
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    documents = [one for text in texts for one in yaml.load_all(text, LOADER) if one]
    notes = [text for name, text in files.items() if name.endswith("NOTES.txt")]
    whole = {"found": found + report["errors"], "documents": documents, "notes": notes}
    return whole | judged(documents, versions)


asked = json.load(sys.stdin)
with Chart.load(asked["chart"]) as loaded:
    answer = {
        name: rendered(loaded, asked["chart"], values, asked["versions"])
        for name, values in asked["sets"].items()
    }
    answer["values"] = loaded.values
json.dump(answer, sys.stdout)
