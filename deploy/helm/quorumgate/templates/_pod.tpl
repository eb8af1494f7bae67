{{/* The volume with the fleet's certificates. */}}
{{- define "quorumgate.fleetVolume" -}}
{{- $name := include "quorumgate.fullname" . -}}
- name: fleet
  {{- if eq .Values.fleetTls.mode "secret" }}
  secret:
    secretName: {{ include "quorumgate.fleetSecret" . }}
    defaultMode: 0440
  {{- else if eq .Values.fleetTls.mode "certManager" }}
  # All pods are made alike, so that each gets the certificates of all; with mode csi it gets its own only.
  projected:
    defaultMode: 0440
    sources:
      {{- range $ordinal := until (int .Values.replicas) }}
      - secret:
          name: {{ $name }}-{{ $ordinal }}-fleet
          items:
            {{- if eq $ordinal 0 }}
            - { key: ca.crt, path: ca.crt }
            {{- end }}
            - { key: tls.crt, path: {{ $name }}-{{ $ordinal }}.crt }
            - { key: tls.key, path: {{ $name }}-{{ $ordinal }}.key }
      {{- end }}
  {{- else }}
  csi:
    driver: csi.cert-manager.io
    readOnly: true
    volumeAttributes:
      csi.cert-manager.io/issuer-name: {{ .Values.fleetTls.issuerRef.name }}
      csi.cert-manager.io/issuer-kind: {{ .Values.fleetTls.issuerRef.kind }}
      csi.cert-manager.io/issuer-group: {{ .Values.fleetTls.issuerRef.group }}
      csi.cert-manager.io/dns-names: ${POD_NAME}
      csi.cert-manager.io/key-usages: digital signature,server auth,client auth
      csi.cert-manager.io/key-encoding: PKCS8
      csi.cert-manager.io/duration: {{ .Values.fleetTls.duration }}
      csi.cert-manager.io/renew-before: {{ .Values.fleetTls.renewBefore }}
      csi.cert-manager.io/fs-group: "65532"
  {{- end }}
{{- end -}}

{{/* Where pods go. Two on one machine are lost together. */}}
{{- define "quorumgate.placement" -}}
{{- $selector := include "quorumgate.selector" . -}}
{{- with .Values.topologySpread }}
{{- if or .hostname .zone }}
topologySpreadConstraints:
  {{- range $key, $wish := dict "kubernetes.io/hostname" .hostname "topology.kubernetes.io/zone" .zone }}
  {{- if $wish }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: {{ $wish }}
    nodeTaintsPolicy: Honor
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
