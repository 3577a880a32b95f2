"""What a value of each kind may look like in YAML, right and wrong: the words of the grammar. Each fits in a line."""

from __future__ import annotations

NOTHING = ("", "null", "~", "Null", '""', "''")
SHAPES = (
    "[]", "{}", "[1]", "{a: b}", "[null]", "true", "1", "1.5", "text", '"text"', "!!str 1", "!foo bar", "2001-01-01",
)  # fmt: skip
BOOLEANS = (
    "true", "false", "True", "FALSE", "yes", "no", "on", "off", "On", "Yes", "y", "n", "Y", "t", "f", "1", "0",
    '"true"', '"false"', "'yes'", "!!bool true", "!!bool yes", "tRUE", "truee",
)  # fmt: skip
DURATIONS = (
    "10s", "0s", '"0"', "0", "10", '"10"', "-5s", ".5s", "5.s", "500ms", "100us", "100µs", "1ns", "9999h", "1h30m",
    "5m0s", "10s ", '"10s "', "'10 s'", "+5s", "1d", "5", "1e3s", "1.5h", "00s", "0h0m0s", "292y", "[10s]", "{}",
    "true", "1_0s", "10S", "9223372036854775807ns", "9223372036854775808ns", "2562048h", '"."', '"s"', '"-"', "1m1h",
    "1s1s", "0x10s", "1:30", "0.0000000001s", "60.000000000000000001s", "8784h", "8785h", "1s", "999ms", "-0s",
)  # fmt: skip
CPU_LISTS = (
    '"0"', "0", '"0-1"', "0-1", '"1-0"', '"0,0"', '"0,"', '","', '" 0"', '"0 "', '"0, 1"', '"0-0"', '"00"', '"+0"',
    '"0-+1"', '"1-+2"', '"-1"', '"0--1"', '"0x0"', "0x0", "010", "0o1", "1_0", '"1_0"', "[0]", '"all"', '"0-1000"',
    '"65535"', '"65536"', "true", "1.0", "1e0", '"0-1:2"', '"0-3/2"', "'0,2'", '"0\\n"', '"\\t0"', "1,2", "0,8",
    "'0-1,8-9'", "1:30", "00", "07", "08", '"0-3"', "0-3", "-0", '"0-1-2"', '"0,1,0-1"', '"9999999999999999999"',
    "!!str 0", "!!int '0'", "0-2,4", '"0-1,1-2"', '"０"', '"0-"', '"-"', '" "', "2_1", "+1", "0b11", '"0.0"',
)  # fmt: skip
CPUS = (
    '"1"', "1", "1.5", '"1500m"', "500m", '"1.0004"', '"1.0005"', '"1.9995"', '"2.0000000001"', '"400u"', '"500u"',
    '"600u"', '"0"', "0", "0.0", '"0.5"', '"1e3"', "1e0", '"1E1"', '"1k"', '"1Ki"', '"1 "', '" 1"', '"-1"', "-1",
    '"+1"', '"5."', '".5"', '"Mi"', '"m"', '"e3"', '"."', '"+"', "true", "[1]", "{}", '"1g"', '"0x10"', "0x1", "01",
    "010", "1_0", '"1_0"', "9223372036854775807", '"9223372036854775808"', '"1e100"', '"0.0001"', '"1n"', '"100n"',
    '"1500000u"', '"1999999n"', ".inf", ".nan", "1:30", '"1E"', '"10E"', '"3"', '"2000m"', '"0.1m"', '"1e-3"',
    '"1E-3"', '"1.5e0"', "!!str 1", '"1２"', '"1\\n"', '"100000000000000000000"', '"999"', '"16"', '"4"', '"15.9"',
    "2", "2.0", "1e3",
)  # fmt: skip
AMOUNTS = (
    "512Mi", '"1Gi"', "1073741824", "1.5Gi", '"0.1"', '"1.5"', '"100m"', "0", '"0"', '"0Mi"', "-1Mi", '"1GB"',
    '"1gi"', '"1 Gi"', '"1Gi "', "1e9", '"1e9"', "1E9", "0x40000000", "1_000_000", '"Mi"', '"Ki"', "100M", "1G",
    "0.5Gi", "true", "[1Gi]", "{}", '"1Ei"', '"8Ei"', '"16Ei"', '"9223372036854775808"', "1.0", "1e3",
    '"12345678901234567890"', '"1.0001Ki"', '"0.0000001Gi"', '"1e-9"', '"1500m"', '"1048576000m"', '"104857600"',
    "104857600", '"1k"', '"1K"', '"1m"', '"1n"', "!!str 1", '"1000Gi"',
)  # fmt: skip
THRESHOLDS = (
    '"100Mi"', "100Mi", '"5%"', "5%", '"0%"', '"100%"', '"0"', "0", '"0Mi"', '".5%"', '"5%%"', '"1e1%"', '"101%"',
    '"-1%"', '"5.5%"', '"%"', '"5 %"', '" 5%"', '"5% "', '"0.000001%"', '"-1"', "100", '"100 Mi"', '"1e9"', '"NaN%"',
    '"inf%"', '"0x1p1%"', '"+5%"', '"1_0%"', '"1.5Gi"', '"100m"', "true", "[1]", "{}", '"99.9%"', '"5.%"', '"05%"',
    '"00%"', '"100.0%"', '"0.0%"', '"1e-1%"', '"3.33%"', '"0.1"', '"Mi"', '"+0%"', '"-0%"', '"100Gi"', '"1Ei"', "1e3",
    '"1e3"', '"7.777777777%"', '"12.3456789012%"',
)  # fmt: skip
SIGNALS = (
    "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
    "pid.available", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available",
    "allocatableNodeFs.available", "memory.free", "Memory.available", "nodefs.inodesfree",
)  # fmt: skip
SWITCHES = (
    '"true"', '"false"', "true", "false", '"1"', "1", "0", '"TRUE"', '"True"', '"t"', '"F"', '"yes"', "yes", "off",
    '"2"', '"tRue"', '" true"', "[true]", "{}", "1.0", '"on"', "!!str true", '"01"',
)  # fmt: skip
NUMBERS = (
    '"8"', "8", '"7"', '"08"', "08", "010", '"8.0"', "8.0", '"+8"', "+8", '"0x8"', "0x10", '"1e1"', "1e1", '"9"', "9",
    '"16"', '"9999999999999999999"', '" 8"', '"8 "', '"-8"', '"0b1000"', '"1_0"', "1_0", '"９"', '"10"', "0o11",
    "true", '"9223372036854775807"',
)  # fmt: skip
TOPOLOGY_POLICIES = (
    "none", "best-effort", "restricted", "single-numa-node", '"restricted"', "None", "NONE", "best_effort",
    "Restricted", '"none "', "single-numa", "[none]", "true", "1", "!!str none",
)  # fmt: skip
SCOPES = ("container", "pod", '"pod"', "Pod", "POD", "node", '"pod "', "[pod]", "1", "pods")
CPU_POLICIES = ("none", "static", '"static"', "None", "Static", "STATIC", '"static "', "dynamic", "[static]", "true")
MEMORY_POLICIES = (
    "None", "Static", '"Static"', "none", "static", "STATIC", "BestEffort", '"Static "', "[None]", "false",
)  # fmt: skip
NODES = (
    "0", "1", '"0"', "-1", "99", "0.0", "1.5", "00", "0x0", "0x1", "true", "[0]", "1_0", "2147483648", "1e0",
    "4294967296", "9223372036854775808", "!!int '0'",
)  # fmt: skip
RESOURCES = (
    "memory", "hugepages-2Mi", "hugepages-1Gi", "hugepages-2M", "hugepages-2048Ki", "hugepages-", "hugepages-0",
    "cpu", "Memory", "hugepages-1.5Mi", "ephemeral-storage", "hugepages-2097152",
)  # fmt: skip
RESERVABLE = ("cpu", "memory", "pid", "ephemeral-storage", "CPU", "Memory", "storage", "gpu", "hugepages-2Mi", "cpus")
VERSIONS = (
    "kubelet.config.k8s.io/v1beta1", '"kubelet.config.k8s.io/v1beta1"', "kubelet.config.k8s.io/v1", "v1beta1", "v1",
    "kubelet.config.k8s.io/v1alpha1", "kubelet.config.k8s.io/V1beta1", "kubelet.config.k8s.io/v1beta1 ", "[a]", "1",
    "kubeadm.k8s.io/v1beta4", "kubelet.config.k8s.io",
)  # fmt: skip
KINDS = (
    "KubeletConfiguration", '"KubeletConfiguration"', "kubeletconfiguration", "KubeletConfig", "ConfigMap", "[a]",
    "1", "SerializedNodeConfigSource", "CredentialProviderConfig",
)  # fmt: skip
OTHER = (
    ("maxPods", ("110", '"110"', "-1", "0", "1e2", "110.0", "null", "")),
    ("cgroupDriver", ("systemd", "cgroupfs", "foo", "1", "")),
    ("cgroupRoot", ("/", '""', "/kubepods")),
    ("port", ("10250", "0", "99999", '"10250"')),
    ("readOnlyPort", ("0", "10255", "-1")),
    ("clusterDNS", ("[10.96.0.10]", "10.96.0.10", "[]", "null", "[1]")),
    ("clusterDomain", ("cluster.local", '""', "1")),
    ("failSwapOn", BOOLEANS),
    ("serializeImagePulls", ("false", "no", "null")),
    ("systemReservedCgroup", ("/system.slice", '""', "''", "null", "", "~", "1")),
    ("kubeReservedCgroup", ("/kube.slice", '""', "''", "null", "", "~", "[]")),
    ("enforceNodeAllocatable", (
        "[pods]", "[none]", "[]", "null", "[pods, system-reserved]", "[foo]", "pods", "[none, pods]",
    )),
    ("syncFrequency", DURATIONS),
    ("evictionSoft", ("{}", "null", "{memory.available: 1Gi}", "{memory.available: '5%'}")),
    ("evictionSoftGracePeriod", ("{}", "null", "{memory.available: 90s}", "{memory.available: 5}")),
    ("evictionMinimumReclaim", ("{}", "{memory.available: 0Mi}", "null")),
    ("rotateCertificates", ("true", "null")),
    ("staticPodPath", ("/etc/kubernetes/manifests", "manifests", "null", "1")),
    ("authentication", ("{anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}}", "null", "{}", "[]")),
    ("logging", (
        "{flushFrequency: 0, options: {json: {infoBufferSize: '0'}}, verbosity: 0}",
        "null", "{format: text}", "{format: foo}",
    )),
    ("memorySwap", ("{}", "null", "{swapBehavior: LimitedSwap}", "{swapBehavior: foo}")),
    ("containerRuntimeEndpoint", ('""', "unix:///run/containerd/containerd.sock", "null")),
    ("nodeStatusUpdateFrequency", ("0s", "10s", "5")),
    ("resolvConf", ("/run/systemd/resolve/resolv.conf", "null", '""')),
    ("shutdownGracePeriod", ("0s", "30s", "-1s")),
    ("registerWithTaints", ("[]", "null", "[{key: a, effect: NoSchedule}]", "{}")),
    ("cpuCFSQuota", BOOLEANS),
    ("qosReserved", ("{}", "null", "{memory: 50%}")),
    ("imageGCHighThresholdPercent", ("85", "101", '"85"')),
    ("crashLoopBackOff", ("{}", "null")),
)  # fmt: skip  # fmt: skip
"""Settings of the kubelet that numalign leaves alone; the first text is right."""
NO_SETTINGS = (
    ("topologyManagerPolicies", ("none",)),
    ("CpuManagerPolicy", ("static",)),
    ("cpumanagerpolicy", ("static", "none")),
    ("cpu-manager-policy", ("static",)),
    ("reservedSystemCpus", ('"0"',)),
    ("foo", ("bar", "{a: 1}", "null")),
)  # fmt: skip
"""Keys that neither has."""
