{{- /* Metadata of everything that belongs to a component. */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  seccompProfile: {type: RuntimeDefault}
volumes: [{name: scratch, emptyDir: {}}]
{{- end }}

{{- define "container" -}}
image: {{ .Values.image }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts: [{name: scratch, mountPath: /tmp}]
{{- end }}

{{- define "environment" -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: database-url}}
- name: HOLDFAST_LOG_FORMAT
  value: json
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}
