# syntax=docker/dockerfile:1
# Two images out of one tree. `service`: the migration, the API and the maintenance worker. `gpu-worker`: the same code in its
# own virtual environment beside SGLang, which keeps its own interpreter and is only spoken to over HTTP.

FROM python:3.11-slim-bookworm AS service
RUN useradd --system --uid 10001 --create-home assizes && install -d -o assizes -g assizes /spool
WORKDIR /opt/assizes
COPY requirements.lock ./
RUN python -m venv /opt/venv \
 && /opt/venv/bin/python -m pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes -r requirements.lock
COPY . .
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER assizes
CMD ["python", "-m", "api", "--host", "0.0.0.0"]

FROM lmsysorg/sglang:v0.5.23 AS gpu-worker
WORKDIR /opt/assizes
COPY requirements.lock ./
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/python -m pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes -r requirements.lock
COPY . .
# the fleet file names SGLang's interpreter by one path, wherever this image keeps it; PATH stays the image's own
RUN printf '#!/bin/sh\nexec python3 "$@"\n' > /usr/local/bin/sglang-python && chmod 755 /usr/local/bin/sglang-python
ENV PYTHONUNBUFFERED=1 HF_HOME=/weights
ENTRYPOINT ["/opt/venv/bin/python", "-m", "workers", "gpu", "--model"]
