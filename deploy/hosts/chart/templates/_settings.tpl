{{/* Lines NAME=VALUE of a file, as JSON. */}}
{{- define "shardmq.file" -}}
{{- $found := dict -}}
{{- range .lines -}}
{{- if regexMatch "^[A-Z_]+=" . -}}
{{- $pair := splitn "=" 2 . -}}
{{- $_ := set $found $pair._0 $pair._1 -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Settings that all hosts have in common, as JSON: of hosts.env, but for what names hosts and members of etcd. */}}
{{- define "shardmq.settings" -}}
{{- $hosts := list -}}
{{- range until (int .Values.hosts) -}}
{{- $hosts = append $hosts (printf "%s-%d" $.Release.Name .) -}}
{{- end -}}
{{- $members := .Values.etcd.endpoints -}}
{{- if .Values.etcd.enabled -}}
{{- $members = list -}}
{{- range until 3 -}}
{{- $members = append $members (printf "%s-etcd-%d.%s-etcd:2379" $.Release.Name . $.Release.Name) -}}
{{- end -}}
{{- end -}}
{{- $settings := include "shardmq.file" (dict "lines" (.Files.Lines "hosts.env")) | fromJson -}}
{{- $authority := (regexSplit "cacertfile=" (get $settings "SHARDMQ_JOIN") 2) | last -}}
{{- $who := printf "%s:$(ETCD_PASSWORD)" .Values.etcd.user -}}
{{- $join := printf "etcds://%s@%s/%s?cacertfile=%s" $who (join "," $members) .Values.etcd.prefix $authority -}}
{{- $_ := set $settings "SHARDMQ_JOIN" $join -}}
{{- $_ := set $settings "SHARDMQ_HOSTS" (join "," $hosts) -}}
{{- $_ := set $settings "SHARDMQ_MANAGEMENT_HOST" "0.0.0.0" -}}
{{- if .Values.secrets.definitions -}}
{{- $_ := set $settings "SHARDMQ_DEFINITIONS" "/etc/shardmq/definitions" -}}
{{- end -}}
{{- if .Values.secrets.tls -}}
{{- $_ := set $settings "SHARDMQ_TLS_PORT" "5671" -}}
{{- $_ := set $settings "SHARDMQ_TLS_CERT" "/etc/shardmq/tls/tls.crt" -}}
{{- $_ := set $settings "SHARDMQ_TLS_KEY" "/etc/shardmq/tls/tls.key" -}}
{{- if not .Values.plain -}}
{{- $_ := set $settings "SHARDMQ_NO_PLAIN" "1" -}}
{{- end -}}
{{- else if not .Values.plain -}}
{{- fail "with plain: false, secrets.tls names the certificate that clients see" -}}
{{- end -}}
{{- toJson (mergeOverwrite $settings .Values.settings) -}}
{{- end -}}

{{- define "shardmq.labels" -}}
app.kubernetes.io/name: shardmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: host
{{- end -}}

{{- define "shardmq.etcdLabels" -}}
app.kubernetes.io/name: shardmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: etcd
{{- end -}}

{{/* What no container needs. */}}
{{- define "shardmq.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop:
    - ALL
{{- end -}}

{{/* No two pods of one kind on a machine: one may burn. Nor in a zone, where that can be. */}}
{{- define "shardmq.apart" -}}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- . | nindent 12 }}
topologySpreadConstraints:
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- . | nindent 8 }}
{{- end -}}

{{- define "shardmq.claim" -}}
accessModes:
  - ReadWriteOncePod
{{- with .className }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end -}}
