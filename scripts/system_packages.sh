#!/usr/bin/env bash
# Chromium and bubblewrap, which two groups of tests need: installs what is missing (Debian, as root), else says how.
# Prints on stdout the pytest marker expression of what can run here; everything meant for people goes to stderr.
# With REQUIRE_ALL=1 a missing program is an error instead of a shorter test run.
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }
has_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }
has_sandbox() { command -v bwrap >/dev/null; }
works_sandbox() { bwrap --ro-bind / / --unshare-all true 2>/dev/null; }

packages=()
has_browser || packages+=(chromium)
has_sandbox || packages+=(bubblewrap)

if [ ${#packages[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "Installing ${packages[*]} (once) ..."
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1
  then
    tail -n 20 "$log" >&2
    say "apt-get could not install ${packages[*]}."
  fi
  rm -f "$log"
elif [ ${#packages[@]} -gt 0 ]; then
  say "Missing: ${packages[*]}. To run every test: sudo apt-get install -y --no-install-recommends ${packages[*]}"
fi

expression="not slow"
leave_out() { # marker, reason
  say "Left out: the tests marked '$1' ($2)."
  expression+=" and not $1"
  missing=1
}
missing=0
has_browser || leave_out browser "no Chromium"
if ! has_sandbox; then leave_out sandbox "no bubblewrap"
elif ! works_sandbox; then leave_out sandbox "bubblewrap cannot make a namespace here"
fi

if [ "$missing" = 1 ] && [ "${REQUIRE_ALL:-0}" = 1 ]; then
  say "REQUIRE_ALL=1: every test must run, so this is an error."
  exit 1
fi
printf '%s\n' "$expression"
