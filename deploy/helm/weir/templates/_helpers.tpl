{{- define "weir.name" -}}
{{- if contains "weir" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-weir" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "weir.config" -}}
{{- .Values.config | default (.Files.Get "files/weir.yaml") }}
{{- end }}

{{- define "weir.pod" -}}
metadata:
  labels:
    {{- include "weir.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/config: {{ include "weir.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  # Longer than WEIR_SHUTDOWN_TIMEOUT: a kill in the middle of a call parks its job as unknown.
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch # otherwise each mount gives the group rights to the files with credentials
    seccompProfile: {type: RuntimeDefault}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "weir.selector" . | nindent 10 }}
  containers:
    - name: weir
      # Name your own image, by its digest.
      image: {{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      env:
        - {name: WEIR_CONFIG, value: /etc/weir/weir.yaml}
        - name: WEIR_INSTANCE
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- if .Values.nats.inside }}
        - {name: WEIR_DATA_DIR, value: /var/lib/weir/data}
        - {name: WEIR_NATS_LISTEN, value: "0.0.0.0:4222"}
        - {name: WEIR_NATS_AUTH, value: {{ .Values.nats.auth }}}
        {{- else }}
        - name: WEIR_NATS_URL
          valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: nats-url}}
        - {name: WEIR_NATS_INBOX, value: {{ .Values.nats.inbox }}}
        {{- with .Values.nats.signIn }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- if .Values.redis.enabled }}
        - name: WEIR_REDIS_URL
          valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: redis-url}}
        {{- end }}
        - {name: WEIR_REPLICAS, value: {{ .Values.nats.replicas | quote }}}
        {{- end }}
        - {name: WEIR_HTTP_LISTEN, value: "0.0.0.0:8480"}
        - name: WEIR_HTTP_TOKEN
          valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: http-token}}
        # Outlives the container: its successor in this pod knows what was on the wire, and takes its place at once.
        - {name: WEIR_STATE_DIR, value: /var/lib/weir/state}
        - {name: WEIR_LOG_FORMAT, value: {{ .Values.logFormat }}}
        - {name: WEIR_SHUTDOWN_TIMEOUT, value: {{ .Values.shutdownTimeout }}}
        - {name: GOMEMLIMIT, value: {{ .Values.goMemoryLimit }}} # below limits.memory
        {{- with .Values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      ports:
        - {name: http, containerPort: 8480}
        {{- if .Values.nats.inside }}
        - {name: nats, containerPort: 4222}
        {{- end }}
      # HTTP comes up last, when all queues were read: that may take minutes where millions of jobs wait.
      startupProbe:
        httpGet: {path: /livez, port: http}
        {{- toYaml .Values.startupProbe | nindent 8 }}
      livenessProbe:
        httpGet: {path: /livez, port: http}
        {{- toYaml .Values.livenessProbe | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml .Values.readinessProbe | nindent 8 }}
      # A CPU limit would stop the process for tens of milliseconds at a time, and calls with it: none is set.
      resources: {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: config, mountPath: /etc/weir, readOnly: true}
        {{- if .Values.filesSecret }}
        - {name: files, mountPath: /var/run/secrets/weir, readOnly: true}
        {{- end }}
        - {name: state, mountPath: /var/lib/weir}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    {{- if not .Values.nats.inside }}
    - name: state
      emptyDir: {sizeLimit: 256Mi}
    {{- end }}
    - name: config
      configMap: {name: {{ .Values.existingConfigMap | default (include "weir.name" .) }}}
    {{- if .Values.filesSecret }}
    - name: files
      secret: {secretName: {{ .Values.filesSecret }}}
    {{- end }}
    {{- with .Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}
