# The base needs Python 3.11 or later with venv and pip: any python image, or Debian 12 with python3-venv and python3-pip.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/sidecar
COPY requirements.image.lock ./
# What the sidecar needs, each with its hash checked, and what it is built with; nothing else is fetched.
RUN /build/bin/pip wheel --no-cache-dir --no-deps --require-hashes --wheel-dir /wheels -r requirements.image.lock \
    && /build/bin/pip install --no-index --find-links /wheels --upgrade setuptools
COPY pyproject.toml README.md LICENSE config.example.yaml ./
COPY sidecar sidecar
RUN /build/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/sidecar/bin/python3 install --no-index --find-links /wheels capsule-sidecar

FROM ${BASE}
COPY --from=build /opt/sidecar /opt/sidecar
ENV PATH=/opt/sidecar/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    SIDECAR_STATE=/var/lib/sidecar
# A fresh volume takes owner and mode over from here.
RUN mkdir -m 0700 /var/lib/sidecar && chown 10001:10001 /var/lib/sidecar
USER 10001:10001
WORKDIR /
VOLUME /var/lib/sidecar
# The desk. Capsule ports are a range that the configuration chooses.
EXPOSE 7410
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["sidecar", "health"]
ENTRYPOINT ["sidecar"]
CMD ["run", "--root", "/capsules"]
