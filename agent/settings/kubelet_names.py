"""Names that KubeletConfiguration (v1beta1, v1.34 to v1.38) has and that no decision of ours needs.

Used by `agent.settings.parsing`: a pasted snippet may hold them, and they are ignored with a warning, whereas a key
that is not in this list either is a typing error and refused. Source:
https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/#kubelet-config-k8s-io-v1beta1-KubeletConfiguration
"""

IGNORED = frozenset(
    """
    address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS
    clientCertificateKeyAlgorithm
    clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize
    containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint contentType cpuCFSQuota
    cpuCFSQuotaPeriod crashLoopBackOff defaultPodSysctls enableContentionProfiling enableControllerAttachDetach
    enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler
    enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS evictionMaxPodGracePeriod
    evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod failCgroupV1
    failSwapOn fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency
    imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge
    imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit
    kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeReservedCgroup kubeletCgroups
    localStorageCapacityIsolation logging makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls maxPods
    memoryReservationPolicy memorySwap memoryThrottlingFactor
    nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj
    podCIDR podLogsDir podPidsLimit podsPerCore port preloadedImagesVerificationAllowlist protectKernelDefaults
    providerID qosReserved readOnlyPort registerNode registerWithTaints registryBurst registryPullQPS resolvConf
    rotateCertificates runOnce runtimeRequestTimeout seccompDefault serializeImagePulls
    serverCertificateKeyAlgorithm serverTLSBootstrap
    showHiddenMetricsForVersion shutdownGracePeriod shutdownGracePeriodByPodPriority
    shutdownGracePeriodCriticalPods singleProcessOOMKill staticPodPath staticPodURL staticPodURLHeader
    streamingConnectionIdleTimeout syncFrequency systemCgroups systemReservedCgroup tlsCertFile tlsCipherSuites
    tlsCurvePreferences tlsMinVersion tlsPrivateKeyFile tracing userNamespaces volumePluginDir
    volumeStatsAggPeriod
    """.split()  # noqa: SIM905 - ninety quoted names hide the one that is missing
)
