{{/* The name of everything; the pods' names, which are the nodes' ids, begin with it. Room is left for
     the longest ending: a Service's name has at most 63 characters. */}}
{{- define "quorumgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "quorumgate.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quorumgate.labels" -}}
{{ include "quorumgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Name, namespace and labels, for `metadata`; the argument is the root and what follows the name. */}}
{{- define "quorumgate.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "quorumgate.fullname" $root }}{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "quorumgate.labels" $root | nindent 2 }}
{{- end -}}

{{- define "quorumgate.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- $reference := printf "%s:%s" .Values.image.repository $tag -}}
{{- with .Values.image.digest }}{{- $reference = printf "%s@%s" $.Values.image.repository . }}{{- end -}}
{{- $reference -}}
{{- end -}}

{{- define "quorumgate.fleetSecret" -}}
{{- default (printf "%s-fleet" (include "quorumgate.fullname" .)) .Values.fleetTls.secretName -}}
{{- end -}}

{{/* "true" if the nodes gossip: a fleet whose words do not all go through Redis. */}}
{{- define "quorumgate.gossips" -}}
{{- $cluster := default dict .Values.config.cluster -}}
{{- if and .Values.cluster.enabled (ne (toString (dig "gossip" true $cluster)) "false") }}true{{ end -}}
{{- end -}}
