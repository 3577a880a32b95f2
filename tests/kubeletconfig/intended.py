"""Where numalign means to differ from the kubelet, each with its reason and the smallest file that shows it.

`python -m tests.kubeletconfig page` writes the developers' page from this table. Every other difference is a fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.kubeletconfig.compare import ACCEPTED, Difference
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.machines import FIRST
from tests.kubeletconfig.values import OTHER
from tests.kubeletconfig.written import HEAD
from tests.peers import kubelets

EVERY = tuple(kubelets.RELEASES)
BOTH = ("fixed", "kubelet")


@dataclass(frozen=True)
class Intended:
    """A kind of difference.

    Attributes:
        example: the lines after apiVersion and kind of the smallest file; with `whole`, the file.
        reason: why, a sentence.
        kubelet, numalign: patterns of what they say to such a file; numalign's also finds an example's row.
        what: ACCEPTED, or the effective value that differs.
        text: a pattern of the file, where what they say does not tell enough.
        modes: of numalign, in which it differs.
        minors: kubelets from which it differs.
        machine: of the example.
    """

    example: str
    reason: str
    kubelet: str = "starts"
    numalign: str = "usable"
    what: str = ACCEPTED
    text: str = ""
    modes: tuple[str, ...] = BOTH
    minors: tuple[int, ...] = EVERY
    machine: str = FIRST
    whole: bool = False

    def has(self, found: Difference) -> bool:
        return (
            found.what.replace("sharedCPUs", "reservedCPUs") == self.what
            and found.minor in self.minors
            and found.mode.partition("-")[0] in self.modes
            and bool(re.search(self.kubelet, found.kubelet, re.DOTALL))
            and bool(re.search(self.numalign, found.numalign, re.DOTALL))
            and bool(re.search(self.text, found.file.text, re.MULTILINE))
        )

    def file(self) -> File:
        return File(self.example if self.whole else "\n".join([*HEAD, self.example]) + "\n", self.machine)


_READ = "reservedSystemCPUs|kubeReserved|systemReserved|cpuManagerPolicyOptions|topologyManagerPolicyOptions"
_UNSET = r"""\A(?!(?s:.)*\b{}["']?[ \t]*:[ \t]*["']?(?!null|Null)\w)"""
_OTHERS = "|".join(name for name, _ in OTHER)
_FIXED, _KUBELET = ("fixed",), ("kubelet",)

TABLE: tuple[Intended, ...] = (
    # The kubelet starts, numalign refuses the file.
    Intended(
        "systemReserved: {memory: 1Gi, memory: 2Gi}",
        "The kubelet takes the last one and logs a line. Which one was meant only the author knows.",
        numalign="is there twice",
    ),
    Intended(
        "cpumanagerPolicy: static",
        "The kubelet logs a line and goes on without it. A misspelt cpuManagerPolicy would pin no pod in silence.",
        numalign="is not a setting of numalign or of a kubelet",
    ),
    Intended("1: 2", "As a key that is not known.", numalign="has a key that is a"),
    Intended(
        "reservedMemory: [{limits: {memory: 1Gi}}]",
        "The kubelet takes what is missing as node 0 and as no memory, and ignores what it does not know. A number "
        "that is left out is a question.",
        numalign=r"reservedMemory\[\d+\](\.\w+)?: (is missing|nothing is not|is not a setting here|-1 is less)",
    ),
    Intended(
        "reservedMemory: [{numaNode: 0, limits: {hugepages-0: 2Mi}}]",
        "No machine has pages of that size; the kubelet asks for the beginning of the name alone.",
        numalign="cannot be reserved per node",
    ),
    Intended(
        "memoryManagerPolicy: Static\nsystemReserved: {memory: 924Mi}\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 2Gi}}, {numaNode: 1, limits: {memory: -1Gi}}]",
        "The kubelet compares the sums alone, and then counts 1 GiB on node 1 that the node does not have.",
        numalign="is negative; write a positive amount",
    ),
    Intended(
        "kubeReserved: {memory: Mi}",
        "A quantity without digits is 0 for the kubelet.",
        numalign="is not a quantity",
        text=r":\s*[\"']?([KMGTPEm]i?|e3|[.+])\b|:\s*[\"'][.+][\"']",
    ),
    Intended(
        'reservedSystemCPUs: "0"\nkubeReserved: {cpu: "x"}',
        "The kubelet does not read the CPUs of kubeReserved and systemReserved beside reservedSystemCPUs. A quantity "
        "that is none is a mistake in any case.",
        numalign=r"Reserved: cpu: (?:.* is not a quantity|.* is negative)",
        text="reservedSystemCPUs",
    ),
    Intended(
        'evictionHard: {nodefs.available: "NaN%"}',
        "The kubelet takes every floating-point number of Go: NaN, +5%, .5%, 1e1%, 5%%. A percentage is written in "
        "digits here.",
        numalign="is no percentage",
    ),
    Intended(
        'reservedSystemCPUs: "+0"',
        "The kubelet takes signs in a list of CPUs. A sign there is a mistake.",
        numalign="is not a list of CPUs",
        text=r"\+[0-9]",
    ),
    Intended(
        'topologyManagerPolicy: none\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: "7"}',
        "The kubelet looks at no option under policy none. The mistake would show on the day when the policy is "
        "switched on.",
        numalign="topologyManagerPolicyOptions",
        text=r"""topologyManagerPolicy["']?:\s*["']?none""",
    ),
    Intended(
        'cpuManagerPolicy: static\nkubeReserved: {cpu: "16"}',
        "Nothing is left for pods: no CPU is shared, or a node's memory is below zero for the kubelet, which wraps "
        "around.",
        numalign="reserves every CPU|CPUs are reserved, and this|less than the .* reserved|has no .* reserved",
        modes=_FIXED,
    ),
    Intended(
        'cpuManagerPolicy: static\nkubeReserved: {cpu: "1"}\nsystemReserved: {cpu: "9223372036854775808"}',
        "Kubelet 1.37 rounds to thousandths in a number that wraps around, and reserves nothing of it.",
        numalign=r"\d{19}",
        modes=_KUBELET,
        minors=(37,),
    ),
    Intended(
        "---\nfoo: bar",
        "The kubelet reads the first document alone. Two that could be meant are a question; of several with one "
        "KubeletConfiguration, numalign takes that one.",
        numalign=r"holds \d+ (documents|configurations)",
    ),
    Intended(
        "---\n{{[",
        "The kubelet does not parse what follows the first document.",
        numalign="correct the YAML",
        text=r"\A(?s:.)+^---",
    ),
    Intended(
        'clusterDNS: [&dns "10.96.0.10", &dns "10.96.0.11"]',
        "YAML lets an anchor be given again. The library that numalign reads with does not.",
        numalign="found duplicate anchor",
    ),
    Intended(
        "clusterDomain: !name cluster.local",
        "The kubelet ignores tags. A tag says that the value is of a kind that is not known here.",
        numalign="could not determine a constructor for the tag",
    ),
    Intended(
        "cpuManagerPolicy: none",
        "The default of topologyManagerPolicy is best-effort, not none.",
        numalign="topologyManagerPolicyOptions",
        text=_UNSET.format("topologyManagerPolicy"),
        machine="nine nodes",
    ),
    Intended(
        "topologyManagerPolicy: restricted",
        "The default of cpuManagerPolicy is static, not none.",
        numalign="unable to determine reserved CPU resources",
        text=_UNSET.format("cpuManagerPolicy"),
        modes=_KUBELET,
    ),
    # numalign takes the file, the kubelet does not start.
    Intended(
        "cpuManagerPolicy: none",
        "numalign's own configuration needs neither kind nor apiVersion.",
        kubelet=r"Object '(Kind|apiVersion)' is missing|was empty",
        whole=True,
    ),
    Intended(
        "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration}",
        "For the kubelet a file that begins with a brace is JSON and nothing else. JSON is YAML, too.",
        kubelet="json parse error",
        whole=True,
    ),
    Intended(
        "kubeReserved: {cpu: 1}",
        "The kubelet wants texts. What YAML reads as a number or as true means the same.",
        kubelet=rf"cannot unmarshal (number|bool) into Go struct field KubeletConfiguration\.({_READ}) of type st",
    ),
    Intended(
        'mergeDefaultEvictionSettings: "y"',
        "y and n are booleans of YAML 1.1, and are taken as such with quotes, too.",
        kubelet=r"cannot unmarshal string into .*\.(mergeDefaultEvictionSettings|featureGates) of type bool",
        text=r"""["'][yYnN]["']""",
    ),
    Intended(
        'maxPods: "110"',
        "numalign does not look at the values of settings that it does not need.",
        kubelet=rf"cannot unmarshal \w+ into Go struct field KubeletConfiguration\.(?!({_READ})\b)"
        r"|validate: (?!.*(reserved-cpus|reservedMemory|opologyManager|emoryManager|puManager|gate is enabled))"
        r"|time: (unknown|missing) unit|time: invalid duration",
        text=_OTHERS,
    ),
    Intended(
        "cpuManagerReconcilePeriod:",
        "Every key without a value is unset. For the kubelet this one is not.",
        kubelet='time: invalid duration ""',
    ),
    Intended(
        'reservedSystemCPUs: "0 "',
        "Space around a list of CPUs or a quantity changes nothing, and lists of the kernel end with a line end.",
        kubelet=r"""reservedSystemCPUs .* parsing "[^"]*( |\\[nt])|parse quantity "(\s|[^"]*(\s|\\n)")""",
    ),
    Intended(
        "%YAML 1.2\n---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration",
        "The kubelet's library knows YAML 1.1 alone. No value that is read here has another meaning in 1.2.",
        kubelet="found incompatible YAML document",
        whole=True,
    ),
    Intended(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\n"
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration",
        "The KubeletConfiguration is found in a file of several documents, as by kubeadm, and in providers' forms.",
        kubelet='no kind ".*" is registered',
        whole=True,
    ),
    Intended(
        "topologyManagerPolicy: restricted",
        "Without compatibility to the kubelet there is no limit: decisions stay fast on more NUMA nodes.",
        kubelet="unsupported on machines with more than",
        modes=_FIXED,
        machine="nine nodes",
    ),
    Intended(
        'cpuManagerPolicy: static\nkubeReserved: {cpu: "1"}\ncpuManagerPolicyOptions: {align-by-socket: "true"}',
        "What is alpha in the kubelet is not less finished here. A gate that the file closes is closed.",
        kubelet="Alpha-level Options not enabled",
        modes=_FIXED,
    ),
    Intended(
        'cpuManagerPolicy: static\nkubeReserved: {cpu: "1"}\nfeatureGates: {CPUManagerPolicyBetaOptions: false}\n'
        'cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: "true"}',
        "The stages of options are those of the newest kubelet, which has this one as stable.",
        kubelet="Beta-level Options not enabled",
        modes=_FIXED,
        minors=(34, 35),
    ),
    Intended(
        "featureGates: {TopologyManagerPolicyBetaOptions: false}\ntopologyManagerPolicy: restricted\n"
        'topologyManagerPolicyOptions: {max-allowable-numa-nodes: "8"}',
        "The stages of options are those of the newest kubelet, which has this one as stable.",
        kubelet="beta-level options not enabled",
        modes=_FIXED,
        minors=(34,),
    ),
    Intended(
        'memoryManagerPolicy: None\nsystemReserved: {memory: "1Ti"}',
        "Under policy none no decision depends on what is reserved. Under the other one a machine must have it.",
        kubelet="Expected capacity >= reservation|is not a subset of online-cpus",
        modes=_FIXED,
    ),
    Intended(
        "cpuManagerPolicy: static",
        "Where nothing is reserved, numalign reserves a core (safety rule S14).",
        kubelet="unable to determine reserved CPU resources|requires systemreserved.cpu",
        modes=_FIXED,
    ),
    Intended(
        'cpuManagerPolicyOptions: {full-pcpus-only: "true"}\nkubeReserved: {cpu: "1"}',
        "The default of cpuManagerPolicy is static, not none.",
        kubelet="None policy: received unsupported options",
        text=_UNSET.format("cpuManagerPolicy"),
    ),
    Intended(
        "memoryManagerPolicy: Static\nsystemReserved: {memory: 924Mi, <<: {memory: 1Gi}}\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]",
        "In YAML a mapping's own key goes before one of a merge key. For the kubelet the later one counts.",
        kubelet="the total amount",
        text="<<",
        modes=_FIXED,
    ),
    Intended(
        "memoryManagerPolicy: Static\nsystemReserved: {memory: 924Mi}\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 2Mi}}]",
        "No setting of Node Allocatable names huge pages, so that the kubelet lets nothing of them be reserved.",
        kubelet='the total amount .* of type "hugepages-',
        modes=_FIXED,
    ),
    # Both take it, a value differs.
    Intended(
        'cpuManagerPolicy: static\nkubeReserved: {cpu: "1", <<: {cpu: "2"}}',
        "In YAML a mapping's own key goes before one of a merge key. For the kubelet the later one counts.",
        kubelet="",
        numalign="",
        what="reservedCPUs",
        text="<<",
        modes=_FIXED,
    ),
    Intended(
        'cpuManagerPolicy: static\nkubeReserved: {cpu: "1.0004"}',
        "Reserved CPUs are rounded up, as by kubelets up to 1.36. Later ones round to thousandths first.",
        kubelet="",
        numalign="",
        what="reservedCPUs",
        text=r"\.[0-9]{4}|[0-9][un]\b|\.[0-9]+m\b",
        modes=_FIXED,
        minors=(37, 38),
    ),
)


def meant(found: Difference) -> Intended | None:
    """The kind of an intended difference; None for a fault."""
    return next((each for each in TABLE if each.has(found)), None)
