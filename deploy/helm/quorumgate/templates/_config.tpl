{{/* The whole seconds of a duration as the configuration writes it, such as 1m30s or 250ms, rounded up. */}}
{{- define "quorumgate.seconds" -}}
{{- $text := toString . -}}
{{- if or (not $text) (not (regexMatch "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$" $text)) -}}
{{- fail (printf "%q is no duration such as 600s or 1m30s; the time a pod gets to end is computed from it, so that it cannot be a variable" $text) -}}
{{- end -}}
{{- $milliseconds := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $total := 0 -}}
{{- range $part := regexFindAll "[0-9]+(ms|s|m|h)" $text -1 -}}
{{- $total = add $total (mul (regexFind "[0-9]+" $part) (get $milliseconds (regexFind "[a-z]+" $part))) -}}
{{- end -}}
{{- div (add $total 999) 1000 -}}
{{- end -}}

{{/* The time a pod gets to end: that in which new connections are still served, that in which streams may
     finish, and 30 s for the last words to clients, fleet and collector, each of which has a bound of a few
     seconds. The defaults are the gateway's own. */}}
{{- define "quorumgate.grace" -}}
{{- $server := default dict .Values.config.server -}}
{{- $delay := include "quorumgate.seconds" (dig "drain_delay" "5s" $server) -}}
{{- $patience := include "quorumgate.seconds" (dig "drain_timeout" "600s" $server) -}}
{{- add $delay $patience 30 -}}
{{- end -}}

{{/* What must hold between values, and no schema can say. */}}
{{- define "quorumgate.check" -}}
{{- $replicas := int .Values.replicas -}}
{{- $majority := add 1 (div $replicas 2) -}}
{{- if and (not .Values.cluster.enabled) (gt $replicas 1) -}}
{{- fail "replicas without a fleet would each decide alone: set cluster.enabled, or replicas to 1" -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (ge $replicas 3) (gt (int .Values.podDisruptionBudget.maxUnavailable) (int (sub $replicas $majority))) -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable: with %d replicas at most %d may be away, or no majority is left" $replicas (sub $replicas $majority)) -}}
{{- end -}}
{{- if and (eq .Values.fleetTls.mode "csi") (not .Values.fleetTls.issuerRef.name) -}}
{{- fail "fleetTls.issuerRef.name: with mode csi an issuer must be named" -}}
{{- end -}}
{{- if and .Values.clientTls.dnsNames (not (and .Values.clientTls.secretName .Values.clientTls.issuerRef.name)) -}}
{{- fail "clientTls.dnsNames: name the Secret to make (secretName) and who signs (issuerRef.name) as well" -}}
{{- end -}}
{{- end -}}

{{/* The keys of `cluster` that follow from the chart. Each pod reads the same text; what differs between
     pods comes from their environment. */}}
{{- define "quorumgate.cluster" -}}
{{- $files := "/etc/quorumgate-fleet" -}}
{{- $six := eq .Values.ipFamily "IPv6" -}}
{{- $set := dict "node_id" "${POD_NAME}" -}}
{{- if .Values.config.redis -}}{{- $_ := set $set "backend" "redis" -}}{{- end -}}
{{- if include "quorumgate.gossips" . -}}
{{- $_ := set $set "listen" (ternary "[::]:7946" "0.0.0.0:7946" $six) -}}
{{- $_ := set $set "advertise" (ternary "[${POD_IP}]:7946" "${POD_IP}:7946" $six) -}}
{{- $_ := set $set "seeds" (list (printf "%s-fleet:7946" (include "quorumgate.fullname" .))) -}}
{{- if eq .Values.fleetTls.mode "insecure" -}}
{{- $_ := set $set "tls" (dict "insecure" true) -}}
{{- else -}}
{{- $own := ternary "tls" "${POD_NAME}" (eq .Values.fleetTls.mode "csi") -}}
{{- $_ := set $set "tls" (dict "ca" (printf "%s/ca.crt" $files) "cert" (printf "%s/%s.crt" $files $own) "key" (printf "%s/%s.key" $files $own)) -}}
{{- end -}}
{{- end -}}
{{- $floor := ternary .Values.replicas .Values.cluster.expectedMembers (kindIs "invalid" .Values.cluster.expectedMembers) -}}
{{- $cluster := deepCopy (default dict .Values.config.cluster) -}}
{{- $_ := set $set "quorum" (merge (dict "expected_members" (int $floor)) (default dict $cluster.quorum)) -}}
{{- toYaml (mergeOverwrite $cluster $set) -}}
{{- end -}}

{{/* The configuration: what the values say of it, and what follows from the chart. */}}
{{- define "quorumgate.config" -}}
{{- include "quorumgate.check" . -}}
{{- $any := ternary "[::]" "0.0.0.0" (eq .Values.ipFamily "IPv6") -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := dict "listen" (printf "%s:8080" $any) -}}
{{- if .Values.clientTls.secretName -}}
{{- $_ := set $server "tls" (dict "cert" "/etc/quorumgate-tls/tls.crt" "key" "/etc/quorumgate-tls/tls.key") -}}
{{- end -}}
{{- $_ := set $config "server" (mergeOverwrite (default dict $config.server) $server) -}}
{{- $_ := set $config "admin" (mergeOverwrite (default dict $config.admin) (dict "listen" (printf "%s:9090" $any))) -}}
{{- $_ := set $config "state" (mergeOverwrite (default dict $config.state) (dict "file" "/var/lib/quorumgate/state.bin")) -}}
{{- $_ := unset $config "cluster" -}}
{{- if .Values.cluster.enabled -}}
{{- $_ := set $config "cluster" (include "quorumgate.cluster" . | fromYaml) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* A digest of what a running process cannot take on; where it differs, pods are made anew. Every other
     change is taken on by those that run. */}}
{{- define "quorumgate.restart" -}}
{{- $config := include "quorumgate.config" . | fromYaml -}}
{{- $held := list (hasKey $config.server "tls") -}}
{{- range $path := list "server.listen" "server.workers" "server.max_connections" "admin.listen" "log.format" "state" "telemetry" "cluster" "redis" -}}
{{- $value := $config -}}
{{- range splitList "." $path -}}
{{- $value = ternary (get (ternary $value dict (kindIs "map" $value)) .) "" (kindIs "map" $value) -}}
{{- end -}}
{{- $held = append $held $value -}}
{{- end -}}
{{- $held | toJson | sha256sum -}}
{{- end -}}
