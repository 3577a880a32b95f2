# The image of the node agent. Nothing in it needs a shell, and nothing is written inside it at run time.
#
#   docker build -t numalign .
#   buildah build --build-arg BASE=my-python:3.11 -t numalign .
#
# BASE      what the image stands on: any Linux with Python 3.11 or newer, libudev and libstdc++; no shell, no pip.
#           Pin it by digest for a release: --build-arg BASE=python:3.11-slim@sha256:...
# BUILDER   where the wheel is built and installed: the same Python at the same path, and pip.
# PIP_...   pip's own settings, for an index of one's own or none at all (tests/image builds without a network).
ARG BASE=python:3.11-slim
ARG BUILDER=${BASE}

FROM ${BUILDER} AS build
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# Dependencies first: they change rarely, and their layer is used again. Every file is checked against its hash.
COPY deploy/lock/runtime.txt deploy/lock/build.txt deploy/lock/
RUN python3 -m venv --without-pip /opt/build \
 && python3 -m venv --without-pip /opt/numalign \
 && python3 -m pip --python /opt/build/bin/python install --require-hashes -r deploy/lock/build.txt \
 && python3 -m pip --python /opt/numalign/bin/python install --require-hashes -r deploy/lock/runtime.txt
# Of the Kubernetes client only the transport is used: its 1,500 generated classes and the second, asynchronous client
# are more than half of the image. What stays beside it is what kopf looks for.
RUN cd /opt/numalign/lib/python3*/site-packages/kubernetes \
 && rm -rf aio client/api \
 && find client/models -name '*.py*' ! -name '__init__*' ! -name 'v1_object_meta.*' ! -name 'v1_owner_reference.*' \
    ! -name 'v1_managed_fields_entry.*' -delete
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
RUN python3 -m pip --python /opt/build/bin/python wheel --no-build-isolation --no-deps --wheel-dir /dist . \
 && python3 -m pip --python /opt/numalign/bin/python install --no-deps --no-index /dist/*.whl

FROM ${BASE}
COPY --from=build /opt/numalign /opt/numalign
# Bytecode was compiled above; at run time the root is read-only.
ENV PATH=/opt/numalign/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# uid 0 and no privilege: cgroup files and the sockets of kubelet and runtime belong to root, and their owner may write
# them without any capability. The chart drops all of them, forbids new privileges and makes the root read-only.
USER 0:0
ENTRYPOINT ["/opt/numalign/bin/numalign"]
CMD ["run"]
