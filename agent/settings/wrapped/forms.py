"""The documents in which people keep a kubelet's configuration, and where in each it lies.

By API group and kind, or by a key where a document has no kind. `agent.settings.wrapped` chooses among what is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from agent.settings.kubelet_names import IGNORED
from agent.settings.kubelet_values import TAKEN
from agent.settings.model import Settings
from agent.settings.wrapped import flags, names
from agent.settings.wrapped.openshift import kubelet_config, performance_profile
from agent.settings.wrapped.part import (
    Document,
    KubeletPart,
    Load,
    entries_at,
    kind_of,
    mapping_at,
    merged,
    place,
    value_at,
)

Reader = Callable[[Document, Load], Iterator[KubeletPart]]
KUBELET_GROUP, KUBELET_KIND = "kubelet.config.k8s.io", "KubeletConfiguration"


def parts_of(document: Document, load: Load) -> list[KubeletPart] | None:
    """The parts of a document that wraps a kubelet's configuration; None for one of no known form."""
    group, kind = kind_of(document)
    if kind == KUBELET_KIND or (group == KUBELET_GROUP and not kind):
        return [KubeletPart(document, "")]
    reader = _KINDS.get((group, kind)) or (_list if kind.endswith("List") and "items" in document else None)
    if reader is None and not group and not kind:
        if not _BARE & {*document}:
            reader = next((each for key, each in _KEYS.items() if _has(document, key)), None)
        if reader is None and names.AKS_ONLY & set(document):
            reader = _aks
    return None if reader is None else list(reader(document, load))


def _has(document: Document, path: str) -> bool:
    return value_at(document, path) is not None


def _at(path: str, change: Callable[[Document], Document] = dict, *, flags_at: str = "") -> Reader:
    """A mapping at a path, by names of KubeletConfiguration or of a provider; and flags beside it."""

    def reader(document: Document, _: Load) -> Iterator[KubeletPart]:
        found = mapping_at(document, path)
        if found is not None:
            yield KubeletPart(change(found), place(path, document))
        if flags_at and _has(document, flags_at):
            yield flags.part_of(value_at(document, flags_at), place(flags_at, document))

    return reader


def _each(path: str, inner: str, change: Callable[[Document], Document] = dict) -> Reader:
    """A mapping in each entry of a list."""

    def reader(document: Document, _: Load) -> Iterator[KubeletPart]:
        for where, entry in entries_at(document, path):
            found = mapping_at(entry, inner)
            if found is not None:
                yield KubeletPart(change(found), _entry(f"{where}.{inner}", entry, document))

    return reader


def _entry(where: str, entry: Document, document: Document) -> str:
    name = entry.get("name")
    called = f" ({name[:60]})" if isinstance(name, str) else ""
    return place(f"{where}{called}", document)


def _flags_at(*paths: str) -> Reader:
    """Flags at paths, the first of which that exists counts."""

    def reader(document: Document, _: Load) -> Iterator[KubeletPart]:
        for path in paths:
            if _has(document, path):
                yield flags.part_of(value_at(document, path), place(path, document))
                return

    return reader


def _first(*readers: Reader) -> Reader:
    """What several readers find."""

    def reader(document: Document, load: Load) -> Iterator[KubeletPart]:
        for each in readers:
            yield from each(document, load)

    return reader


def _texts(*paths: str) -> Reader:
    """What stands in texts, or lists of texts, at paths: documents of their own."""

    def reader(document: Document, load: Load) -> Iterator[KubeletPart]:
        for path in paths:
            for where, text in _texts_at(document, path):
                yield from nested(text, place(where, document), load)

    return reader


def _texts_at(document: Document, path: str) -> Iterator[tuple[str, str]]:
    head, every, rest = path.partition("[].")
    if every:
        for where, entry in entries_at(document, head):
            yield from ((f"{where}.{inner}", text) for inner, text in _texts_at(entry, rest))
        return
    found = value_at(document, path)
    if isinstance(found, str):
        yield path, found
    for number, text in enumerate(found if isinstance(found, list) else ()):
        if isinstance(text, str):
            yield f"{path}[{number}]", text


def nested(text: str, where: str, load: Load) -> Iterator[KubeletPart]:
    """The parts of the documents in a text, each with the place of the text."""
    for document in load(text):
        if isinstance(document, str):
            if flags.holds_flags(document):
                yield flags.part_of_text(document, where)
        elif isinstance(document, Mapping):
            for part in parts_of(document, load) or ():
                inner = f"{part.where} in {where}" if part.where else where
                yield replace(part, where=inner)


_OURS = frozenset(Settings.fields())


def _config_map(document: Document, load: Load) -> Iterator[KubeletPart]:
    for key, text in (mapping_at(document, "data") or {}).items():
        if not isinstance(text, str):
            continue
        where = place(f"data.{key}", document)
        found = list(nested(text, where, load))
        yield from found
        if not found:
            yield from (
                KubeletPart(each, where, kubelet=False)
                for each in load(text)
                if isinstance(each, Mapping) and each and not kind_of(each)[1] and _OURS & set(each)
            )


def _list(document: Document, load: Load) -> Iterator[KubeletPart]:
    for where, entry in entries_at(document, "items"):
        for part in parts_of(entry, load) or ():
            yield replace(part, where=part.where or where)


def _values(path: str) -> Reader:
    """The chart's values: numalign's own configuration."""

    def reader(document: Document, _: Load) -> Iterator[KubeletPart]:
        for inner in ("config", "numalign.config"):
            found = mapping_at(document, f"{path}.{inner}".lstrip("."))
            if found is not None:
                yield KubeletPart(found, place(f"{path}.{inner}".lstrip("."), document), kubelet=False)

    return reader


def _values_text(path: str) -> Reader:
    """The chart's values in a text."""

    def reader(document: Document, load: Load) -> Iterator[KubeletPart]:
        text = value_at(document, path)
        for each in load(text) if isinstance(text, str) else ():
            if isinstance(each, Mapping):
                for part in _values("")(each, load):
                    yield replace(part, where=place(f"{path}: {part.where}", document))

    return reader


def _argo(document: Document, load: Load) -> Iterator[KubeletPart]:
    """One source, or several."""
    sources = [("spec.source", mapping_at(document, "spec.source") or {}), *entries_at(document, "spec.sources")]
    for where, source in sources:
        for part in _first(_values("helm.valuesObject"), _values_text("helm.values"))(source, load):
            yield replace(part, where=place(f"{where}.{part.where}", document))


def _shoot(document: Document, _: Load) -> Iterator[KubeletPart]:
    """Gardener: a worker's own section stands in place of the cluster's."""
    general = mapping_at(document, "spec.kubernetes.kubelet")
    own = [
        KubeletPart(names.gardener(found), _entry(f"{where}.kubernetes.kubelet", entry, document))
        for where, entry in entries_at(document, "spec.provider.workers")
        if (found := mapping_at(entry, "kubernetes.kubelet")) is not None
    ]
    workers = list(entries_at(document, "spec.provider.workers"))
    if general is not None and (len(own) < len(workers) or not workers):
        yield KubeletPart(names.gardener(general), place("spec.kubernetes.kubelet", document))
    yield from own


def _ec2_node_class(document: Document, load: Load) -> Iterator[KubeletPart]:
    """Karpenter puts spec.kubelet over what the user data has."""
    found = list(_at("spec.kubelet", names.with_groups)(document, load))
    for part in _texts("spec.userData")(document, load):
        if found and not part.flags:
            where = f"{part.where} with spec.kubelet"
            found = [replace(part, body=merged(part.body, found[0].body), where=where)]
        else:
            found.append(part)
    yield from found


def parts_of_list(documents: Sequence[object], load: Load) -> list[KubeletPart]:
    """The parts of the documents of a list, as `az aks nodepool list` prints them; or of JSON patches."""
    found = [
        replace(part, where=f"[{number}].{part.where}")
        for number, each in enumerate(documents[:_MOST_PATCHES])
        for part in (parts_of(each, load) if isinstance(each, Mapping) else None) or ()
    ]
    return found or _from_patch(documents, load)


def _from_patch(operations: Sequence[object], load: Load, base: Document | None = None) -> list[KubeletPart]:
    """The parts of a list of JSON patches (RFC 6902), as Talos takes them: those of the document that they make."""
    made: dict[str, object] = dict(base or {})
    for each in operations[:_MOST_PATCHES]:
        path = value_at(each, "path")
        if not isinstance(path, str) or value_at(each, "op") not in ("add", "replace"):
            continue
        inner = made
        *above, last = path.strip("/").split("/")[:_MOST_PATCHES]
        for key in above:
            below = inner.setdefault(key, {})
            inner = below if isinstance(below, dict) else {}
        inner[last] = value_at(each, "value")
    return parts_of(made, load) or []


_MOST_PATCHES = 100


def _aks(document: Document, _: Load) -> Iterator[KubeletPart]:
    yield KubeletPart(names.with_groups(document), "the kubelet configuration of an AKS node pool")


def _talos(document: Document, _: Load) -> Iterator[KubeletPart]:
    found = mapping_at(document, "machine.kubelet.extraConfig")
    if found is not None:
        yield KubeletPart(found, "machine.kubelet.extraConfig")
    if _has(document, "machine.kubelet.extraArgs"):
        yield flags.part_of(value_at(document, "machine.kubelet.extraArgs"), "machine.kubelet.extraArgs")


def _k3s(document: Document, _: Load) -> Iterator[KubeletPart]:
    """Flags, and those that a file of config.yaml.d adds to the others."""
    keys = [key for key in ("kubelet-arg", "kubelet-arg+") if document.get(key) is not None]
    given = [document[key] for key in keys]
    words = [word for value in given for word in (value if isinstance(value, list) else [value])]
    yield flags.part_of(words, " and ".join(keys))


def _kubespray(document: Document, _: Load) -> Iterator[KubeletPart]:
    """The variables of an inventory: the role's own, the extra ones over them, flags over both."""
    body, keys = names.kubespray(document)
    if keys:
        yield KubeletPart(body, ", ".join(keys))
    if _has(document, "kubelet_custom_flags"):
        yield flags.part_of(document["kubelet_custom_flags"], "kubelet_custom_flags")


def _kind(document: Document, load: Load) -> Iterator[KubeletPart]:
    """Patches of kubeadm's documents: merge patches, and JSON patches with the kind that they change."""
    yield from _texts("kubeadmConfigPatches", "nodes[].kubeadmConfigPatches")(document, load)
    lists = [("", document), *((f"{where}.", node) for where, node in entries_at(document, "nodes"))]
    for head, holder in lists:
        for where, entry in entries_at(holder, "kubeadmConfigPatchesJSON6902"):
            text = entry.get("patch")
            for operations in load(text) if isinstance(text, str) else ():
                base = {"apiVersion": f"{entry.get('group')}/{entry.get('version')}", "kind": entry.get("kind")}
                for part in _from_patch(operations, load, base) if isinstance(operations, list) else ():
                    yield replace(part, where=place(f"{head}{where}.patch", document))


def _k3d(document: Document, _: Load) -> Iterator[KubeletPart]:
    path = "options.k3s.extraArgs"
    yield flags.part_of([entry.get("arg") for _, entry in entries_at(document, path)], place(path, document))


def _node_config(document: Document, load: Load) -> Iterator[KubeletPart]:
    for part in _at("spec.kubelet.config", flags_at="spec.kubelet.flags")(document, load):
        yield replace(part, adds=True)


def _rancher(document: Document, load: Load) -> Iterator[KubeletPart]:
    yield from _flags_at("spec.rkeConfig.machineGlobalConfig.kubelet-arg")(document, load)
    for where, entry in entries_at(document, "spec.rkeConfig.machineSelectorConfig"):
        if _has(entry, "config.kubelet-arg"):
            yield flags.part_of(value_at(entry, "config.kubelet-arg"), place(f"{where}.config.kubelet-arg", document))


_NODE = "nodeRegistration.kubeletExtraArgs"
_KUBEADM = [f"{head}{config}.{_NODE}" for head in ("spec.template.spec.", "spec.template.spec.kubeadmConfigSpec.",
            "spec.kubeadmConfigSpec.", "spec.") for config in ("joinConfiguration", "initConfiguration")]  # fmt: skip
_FILES = [f"{head}files[].content" for head in ("spec.template.spec.", "spec.template.spec.kubeadmConfigSpec.",
          "spec.kubeadmConfigSpec.", "spec.")]  # fmt: skip


def _cluster_api(document: Document, load: Load) -> Iterator[KubeletPart]:
    """Flags of joining nodes, and kubeadm's patches of the kubelet's file among the files."""
    yield from _flags_at(*_KUBEADM)(document, load)
    for path in _FILES:
        head = path.partition("[].")[0]
        for where, entry in entries_at(document, head):
            text, file = entry.get("content"), entry.get("path")
            if isinstance(text, str) and isinstance(file, str) and "kubelet" in file:
                yield from _patch(text, place(f"{where} ({file[:60]})", document), load)


def _patch(text: str, where: str, load: Load) -> Iterator[KubeletPart]:
    found = list(nested(text, where, load))
    yield from found
    if not found:
        yield from (
            KubeletPart(each, where)
            for each in load(text)
            if isinstance(each, Mapping) and each and set(each) <= {"apiVersion", "kind", *TAKEN, *IGNORED}
        )


_KINDS: Mapping[tuple[str, str], Reader] = {
    ("", "ConfigMap"): _config_map,
    ("", "InitConfiguration"): _flags_at(_NODE),
    ("", "JoinConfiguration"): _flags_at(_NODE),
    ("", "List"): _list,
    ("anywhere.eks.amazonaws.com", "Cluster"): _each("spec.workerNodeGroupConfigurations", "kubeletConfiguration"),
    ("argoproj.io", "Application"): _argo,
    ("bootstrap.cluster.x-k8s.io", "EKSConfig"): _flags_at("spec.kubeletExtraArgs"),
    ("bootstrap.cluster.x-k8s.io", "EKSConfigTemplate"): _flags_at("spec.template.spec.kubeletExtraArgs"),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfig"): _cluster_api,
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate"): _cluster_api,
    ("bootstrap.cluster.x-k8s.io", "NodeadmConfig"): _at("spec.kubelet.config", flags_at="spec.kubelet.flags"),
    ("bootstrap.cluster.x-k8s.io", "NodeadmConfigTemplate"): _at(
        "spec.template.spec.kubelet.config", flags_at="spec.template.spec.kubelet.flags"
    ),
    ("bootstrap.cluster.x-k8s.io", "RKE2Config"): _flags_at("spec.agentConfig.kubelet.extraArgs"),
    ("bootstrap.cluster.x-k8s.io", "RKE2ConfigTemplate"): _flags_at(
        "spec.template.spec.agentConfig.kubelet.extraArgs"
    ),
    ("cloud.google.com", "ComputeClass"): _first(
        _at("spec.priorityDefaults.nodeSystemConfig.kubeletConfig", names.with_groups),
        _each("spec.priorities", "nodeSystemConfig.kubeletConfig", names.with_groups),
    ),
    ("container.cnrm.cloud.google.com", "ContainerCluster"): _at("spec.nodeConfig.kubeletConfig", names.with_groups),
    ("container.cnrm.cloud.google.com", "ContainerNodePool"): _at("spec.nodeConfig.kubeletConfig", names.with_groups),
    ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"): _cluster_api,
    ("controlplane.cluster.x-k8s.io", "KubeadmControlPlaneTemplate"): _cluster_api,
    ("core.gardener.cloud", "Shoot"): _shoot,
    ("eksctl.io", "ClusterConfig"): _first(
        _each("nodeGroups", "kubeletExtraConfig"),
        _each("managedNodeGroups", "kubeletExtraConfig"),
        _each("nodeGroups", "bottlerocket.settings.kubernetes", names.bottlerocket),
        _each("managedNodeGroups", "bottlerocket.settings.kubernetes", names.bottlerocket),
        _texts("nodeGroups[].overrideBootstrapCommand", "managedNodeGroups[].overrideBootstrapCommand"),
    ),
    ("helm.cattle.io", "HelmChart"): _values_text("spec.valuesContent"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"): _values("spec.values"),
    ("infrastructure.cluster.x-k8s.io", "AzureManagedMachinePool"): _at("spec.kubeletConfig", names.with_groups),
    ("infrastructure.cluster.x-k8s.io", "AzureManagedMachinePoolTemplate"): _at(
        "spec.template.spec.kubeletConfig", names.with_groups
    ),
    ("k3d.io", "Simple"): _k3d,
    ("k0s.k0sproject.io", "ClusterConfig"): _each("spec.workerProfiles", "values"),
    ("k0sctl.k0sproject.io", "Cluster"): _first(
        _each("spec.k0s.config.spec.workerProfiles", "values"), _texts("spec.hosts[].installFlags")
    ),
    ("karpenter.azure.com", "AKSNodeClass"): _at("spec.kubelet", names.with_groups),
    ("karpenter.k8s.aws", "EC2NodeClass"): _ec2_node_class,
    ("karpenter.sh", "NodePool"): _at("spec.template.spec.kubelet", names.with_groups),
    ("kind.x-k8s.io", "Cluster"): _kind,
    ("kops.k8s.io", "Cluster"): _at("spec.kubelet", names.kops),
    ("kops.k8s.io", "InstanceGroup"): _at("spec.kubelet", names.kops),
    ("kubeadm.k8s.io", "InitConfiguration"): _flags_at(_NODE),
    ("kubeadm.k8s.io", "JoinConfiguration"): _flags_at(_NODE),
    ("machineconfiguration.openshift.io", "KubeletConfig"): kubelet_config,
    ("node.eks.aws", "NodeConfig"): _node_config,
    ("performance.openshift.io", "PerformanceProfile"): performance_profile,
    ("provisioning.cattle.io", "Cluster"): _rancher,
}
_BARE = TAKEN - {"featureGates"}
"""Settings that a document without a kind has itself: then nothing in it is a part that wraps others."""
_KEYS: Mapping[str, Reader] = {
    "kubeletconfig": _at("kubeletconfig"),
    "machine.kubelet": _talos,
    "settings.kubernetes": _at("settings.kubernetes", names.bottlerocket),
    "kubelet-arg": _k3s,
    "kubelet-arg+": _k3s,
    "kubeletConfig": _at("kubeletConfig", names.with_groups),
    "nodeConfig.kubeletConfig": _at("nodeConfig.kubeletConfig", names.with_groups),
    "config.kubeletConfig": _at("config.kubeletConfig", names.with_groups),
    "agentPoolProfiles": _each("agentPoolProfiles", "kubeletConfig", names.with_groups),
    "nodePools": _each("nodePools", "config.kubeletConfig", names.with_groups),
    "properties.kubeletConfig": _at("properties.kubeletConfig", names.with_groups),
    **dict.fromkeys(names.KUBESPRAY, _kubespray),
    "services.kubelet.extra_args": _flags_at("services.kubelet.extra_args"),
    "config": _values(""),
    "numalign.config": _values(""),
    "kubelet": _at("kubelet"),
}
"""Of documents without kind, the first key that one has: configz, Talos, Bottlerocket, k3s and RKE2, GKE and AKS (az
and gcloud, too), kubespray, RKE1, this chart, MicroShift."""
