# The image of the node agent. Nothing in it needs a shell, and nothing is written inside it at run time.
#
#   docker build -t numalign .
#   docker buildx build --platform linux/amd64,linux/arm64 -t numalign .
#   buildah build --build-arg BASE=my-python:3.11 -t numalign .
#
# BASE      what the image stands on: any Linux with Python 3.11 or newer, libudev and libstdc++; no shell, no pip.
#           Pin it by digest: --build-arg BASE=python:3.11-slim@sha256:... `make release` makes its own of the
#           files of Debian's archive that deploy/lock/base.txt names, each with its digest.
# BUILDER   where the wheel is built and installed: the same Python at the same path, and pip. It is of the building
#           machine's architecture: nothing of another one is run, its wheels are only unpacked.
# PIP_...   pip's own settings, for an index of one's own or none at all (tools/image builds without a network).
# SOURCE_DATE_EPOCH  a time in seconds for what is built, so that two builds of a commit are the same bytes, where the
#           builder gives files one time, too (buildah build --timestamp): https://reproducible-builds.org/specs/source-date-epoch
# VERSION, REVISION  of the labels.
ARG BASE=python:3.11-slim
ARG BUILDER=${BASE}

FROM --platform=${BUILDPLATFORM:-linux/amd64} ${BUILDER} AS build
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ARG SOURCE_DATE_EPOCH
ARG BUILDARCH
ARG TARGETARCH
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# Dependencies first: they change rarely, and their layer is used again. Every file is checked against its hash.
COPY deploy/lock/runtime.txt deploy/lock/build.txt deploy/lock/
RUN python3 -m venv --without-pip /opt/build \
 && python3 -m venv --without-pip /opt/numalign \
 && python3 -m pip --python /opt/build/bin/python install --require-hashes -r deploy/lock/build.txt \
 && if [ "$TARGETARCH" = "$BUILDARCH" ]; then \
      python3 -m pip --python /opt/numalign/bin/python install --no-compile --require-hashes -r deploy/lock/runtime.txt; \
    else \
      case $TARGETARCH in amd64) of=x86_64 ;; arm64) of=aarch64 ;; \
        *) echo "for $TARGETARCH build on a machine of that architecture" >&2; exit 1 ;; esac \
      && python3 -m pip install --no-compile --require-hashes --only-binary=:all: \
        --platform manylinux2014_$of --platform manylinux_2_17_$of --platform manylinux_2_28_$of \
        --target "$(echo /opt/numalign/lib/python3*/site-packages)" -r deploy/lock/runtime.txt \
      && rm -rf /opt/numalign/lib/python3*/site-packages/bin; \
    fi
# Of the Kubernetes client only the transport is used: its 1,500 generated classes and the second, asynchronous client
# are more than half of the image. What stays beside it is what kopf looks for.
RUN cd /opt/numalign/lib/python3*/site-packages/kubernetes \
 && rm -rf aio client/api \
 && find client/models -name '*.py*' ! -name '__init__*' ! -name 'v1_object_meta.*' ! -name 'v1_owner_reference.*' \
    ! -name 'v1_managed_fields_entry.*' -delete
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
RUN python3 -m pip --python /opt/build/bin/python wheel --no-build-isolation --no-deps --wheel-dir /dist . \
 && python3 -m pip --python /opt/numalign/bin/python install --no-compile --no-deps --no-index /dist/*.whl \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/numalign/lib/python3*/site-packages

# The platform is named since buildah would otherwise take the first stage's.
FROM --platform=${TARGETPLATFORM:-linux/amd64} ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="numalign" \
      org.opencontainers.image.description="A Kubernetes node agent that aligns CPUs, memory and devices on NUMA nodes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/numalign /opt/numalign
# Bytecode was compiled above, without the time of its source, which a builder may change; the root is read-only at run
# time.
ENV PATH=/opt/numalign/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# uid 0 and no privilege: cgroup files and the sockets of kubelet and runtime belong to root, and their owner may write
# them without any capability. The chart drops all of them, forbids new privileges and makes the root read-only.
USER 0:0
ENTRYPOINT ["/opt/numalign/bin/numalign"]
CMD ["run"]
