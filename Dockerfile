# The MAIL server in a container; see docs/deployment.md#docker.

ARG PYTHON=3.12

# --- build: the package and what it needs, in an environment of their own --------------------

FROM python:${PYTHON}-slim AS build

WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock swarms.json ./
RUN python -m venv --without-pip /opt/mail
# Files with other contents than those that the lock names are refused.
RUN pip --python /opt/mail/bin/python install --no-cache-dir --disable-pip-version-check \
    --require-hashes -r requirements.lock
COPY src ./src
COPY spec ./spec
RUN pip --python /opt/mail/bin/python install --no-cache-dir --disable-pip-version-check \
    --no-deps .

# --- run: nothing else, and not as root --------------------------------------------------------

FROM python:${PYTHON}-slim

RUN useradd --uid 10001 --user-group --create-home --skel /dev/null --home-dir /data \
    --shell /usr/sbin/nologin swarm
COPY --from=build /opt/mail /opt/mail
COPY mail.toml swarms.json /etc/mail/

ENV PATH=/opt/mail/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MAIL_CONFIG_PATH=/etc/mail/mail.toml \
    DATABASE_URL=sqlite:////data/mail.db

# What the server writes is in /data: database, logs, registry, the agents' files.
USER swarm
WORKDIR /data
VOLUME /data
EXPOSE 8000

# Flags of `docker run` come last, so they win.
ENTRYPOINT ["mail", "server", "--swarm-source", "/etc/mail/swarms.json"]
HEALTHCHECK --interval=15s --timeout=6s --start-period=60s --retries=3 \
    CMD ["mail", "ping", "http://127.0.0.1:8000"]
