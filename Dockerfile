# Two images: `docker build --target broker .` for brokers, name servers and the command line; `--target notebook .` for a
# Spark notebook beside a broker. How to run them: compose.yaml, docs/operations.md. `make image-check` builds both.

FROM debian:12-slim AS python
# tini is the first process of a container: it hands signals on, and waits for what others leave behind. Debian's fixes of
# the day are wanted, so no versions are named here.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv tini \
 && rm -rf /var/lib/apt/lists/*
# Nobody runs as root; the same number everywhere, so that a volume's files belong to the same user in each container
RUN groupadd --gid 10911 slipstream \
 && useradd --uid 10911 --gid slipstream --home-dir /home/slipstream --create-home --shell /usr/sbin/nologin slipstream \
 && install --directory --owner=slipstream --group=slipstream --mode=0750 /data /var/cache/slipstream
ENV PATH=/opt/slipstream/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/var/cache

# Versions are the lock's, and so are those of what builds; EXTRAS are those of pyproject.toml. The C compiler links the
# compiled code; it stays in this stage
FROM python AS build
ARG EXTRAS=web
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY requirements.lock ./
RUN python3 -m venv /opt/slipstream \
 && grep -E '^(setuptools|wheel)==' requirements.lock > /tmp/build-requirements.txt \
 && pip install --requirement /tmp/build-requirements.txt
COPY . .
# First what the package needs; then its compiled code, for every x86-64-v3 or Armv8.2-A, and the package with it
RUN pip install --no-build-isolation --constraint requirements.lock ".[$EXTRAS]" \
 && python -m tools.dev.carried \
 && pip install --no-build-isolation --no-deps --force-reinstall .
# Compiles where the processor of this build is older than these. This code lies beside the installed sources, where only
# root may write; whoever runs takes a copy to /var/cache/slipstream
WORKDIR /
RUN slipstream warm

FROM build AS notebook-build
# By its name: what is installed, and its kernels, stay
WORKDIR /source
RUN pip install --no-build-isolation --constraint requirements.lock "slipstream-log[spark,plots]" \
 && pip install --no-build-isolation --constraint requirements.lock --requirement docs/containers/notebook.lock
# Java is tried, and what it needs is made beside it, where nobody may write later. Not in the source's folder: that has a
# module `slipstream`, too
WORKDIR /
RUN python -c "import sys; from slipstream.spark_bridge import java_home, spark_home; sys.exit(java_home.main() or spark_home.main())"

FROM python AS notebook
COPY --from=notebook-build /opt/slipstream /opt/slipstream
ENV JAVA_HOME=/opt/slipstream/java
USER 10911:10911
WORKDIR /home/slipstream
EXPOSE 8888
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=30s --start-period=2m --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8888/api', timeout=20)"]
ENTRYPOINT ["tini", "-s", "--"]
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser"]

# The last one, so that it is what `docker build .` makes
FROM python AS broker
COPY --from=build /opt/slipstream /opt/slipstream
COPY docs/containers/broker.properties /etc/slipstream/broker.properties
USER 10911:10911
WORKDIR /data
VOLUME /data
# Clients, and the port two below for them; replicas; a name server's; metrics
EXPOSE 10911 10909 10912 9876 5557
STOPSIGNAL SIGTERM
# Reads shared memory alone: 0 while a broker serves and no restart would mend anything; a slave that is gone is none of
# it. A start behind a power cut walks through the log
HEALTHCHECK --interval=30s --timeout=30s --start-period=5m --retries=3 \
    CMD ["sh", "-c", "slipstream status --alive /data/store > /dev/null || exit 1"]
ENTRYPOINT ["tini", "-s", "--", "slipstream"]
CMD ["broker", "-c", "/etc/slipstream/broker.properties"]
