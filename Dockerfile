# One image for every process of Tidegate; docker-compose.yml says which command each container runs.
FROM python:3.11-slim-bookworm AS packages
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /app
COPY pyproject.toml uv.lock ./
# From the lock file, without the groups for development; the code itself is copied below.
RUN UV_PYTHON_DOWNLOADS=never uv sync --locked --no-default-groups --no-install-project --compile-bytecode

FROM python:3.11-slim-bookworm
COPY --from=packages /app/.venv /app/.venv
COPY services /app/services
COPY shared /app/shared
COPY infra /app/infra
COPY LICENSE /app/LICENSE
# A new named volume takes the mode of the folder that it covers. Tenants pass through the root of the local backend.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tidegate \
    && mkdir --parents /run/tidegate /var/lib/tidegate/blobs /var/lib/tidegate/local \
    && chmod 700 /var/lib/tidegate/blobs \
    && chmod 711 /var/lib/tidegate/local
ENV PATH=/app/.venv/bin:$PATH PYTHONPATH=/app PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER tidegate
CMD ["python", "-m", "services.api"]
