#!/bin/sh
# The roles of accounts.conf for a server in operator mode: the same lists, as users of two accounts made with nsc, under the operator that
# `nsc env` shows. Run it with the operator's keys at hand; see https://docs.nats.io/using-nats/nats-tools/nsc
#
#   ACCOUNT=WEIR STORE=80G deploy/nats/nsc.sh && nsc push -A
#   (umask 077; nsc generate creds -a WEIR -n worker > worker.creds)       # WEIR_NATS_CREDS=worker.creds WEIR_NATS_INBOX=_INBOX.worker
#   (umask 077; nsc generate creds -a VIEWERS -n viewer > viewer.creds)
#
# SYSTEM=SYS gives the right with which `weir doctor` says what a power cut would lose, and needs the keys of the system account.
#
# Run again, as after an upgrade of weir, it adds what is missing and leaves the keys as they are. Rights stand in the credentials: generate
# those anew, and push. It takes no right away: `nsc edit user --rm SUBJECT` does.
set -eu
ACCOUNT=${ACCOUNT:-WEIR}
VIEWERS=${VIEWERS:-VIEWERS}   # an account of their own: accounts.conf says why
STORE=${STORE:-}              # the most that weir's streams may take, all copies together: accounts.conf says how much
SYSTEM=${SYSTEM:-}            # SYS, if workers and operators may ask how the servers sync: accounts.conf says what else that shows
if [ "$ACCOUNT" = "$VIEWERS" ]; then
  echo "nsc.sh: ACCOUNT and VIEWERS are both $ACCOUNT: viewers in weir's account could write there; name two" >&2
  exit 2
fi

# account makes an account that is not there.
account() {
  nsc describe account "$1" >/dev/null 2>&1 || nsc add account "$1"
}

# user makes a user with these rights, or gives them to the one that is there: its account, its name, its rights.
user() {
  of=$1 name=$2
  shift 2
  if nsc describe user --account "$of" --name "$name" >/dev/null 2>&1; then
    nsc edit user --account "$of" --name "$name" "$@"
  else
    nsc add user --account "$of" --name "$name" "$@"
  fi
}

# has reports whether an account has an import or an export of a name: its account, imports|exports, the name.
has() {
  nsc describe account "$1" --field "nats.$2" 2>/dev/null | tr -d ' \n' | sed 's/\\u003e/>/g' | grep -qF "\"name\":\"$3\""
}

account "$ACCOUNT"
limit=$(nsc describe account "$ACCOUNT" --field nats.limits.disk_storage 2>/dev/null) || limit=
case $limit in
  '' | null | 0 | -1)
    if [ -z "$STORE" ]; then
      echo "nsc.sh: account $ACCOUNT has no limit for its store: set STORE, such as STORE=80G; accounts.conf says how much" >&2
      exit 2
    fi
    [ "$limit" = -1 ] || nsc edit account "$ACCOUNT" --js-enable 0    # no tiers: streams of one replica and of three
    nsc edit account "$ACCOUNT" --js-disk-storage "$STORE"            # nsc does not take both flags at once
    ;;
esac

# The question of weir doctor, which needs a token of the system account.
syncs='$SYS.REQ.SERVER.PING.JSZ'
if [ -n "$SYSTEM" ]; then
  has "$SYSTEM" exports "$syncs" ||
    nsc add export --account "$SYSTEM" --name "$syncs" --subject "$syncs" --private --service --response-type Stream
  if ! has "$ACCOUNT" imports "$syncs"; then
    token=$(mktemp)
    nsc generate activation --account "$SYSTEM" --target-account "$(nsc describe account "$ACCOUNT" --field sub | tr -d '"')" \
      --subject "$syncs" --output-file "$token"
    nsc add import --account "$ACCOUNT" --name "$syncs" --token "$token" --local-subject "$syncs"
    rm "$token"
  fi
fi

user "$ACCOUNT" producer \
  --allow-pub 'weir.jobs.>' \
  --allow-sub '_INBOX.producer.>'

user "$ACCOUNT" worker \
  --allow-pub '_INBOX.>' \
  --allow-pub '_R_.>' \
  --allow-pub 'weir.q.>' \
  --allow-pub 'weir.o.>' \
  --allow-pub 'weir.dead.>' \
  --allow-pub 'weir.events.>' \
  --allow-pub 'weir.results.>' \
  --allow-pub 'weir.calls.>' \
  --allow-pub 'weir.operator.redrive.>' \
  --allow-pub '$KV.weir_config.>' \
  --allow-pub '$KV.weir_control.>' \
  --allow-pub '$KV.weir_leases.>' \
  --allow-pub '$JS.API.INFO' \
  --allow-pub '$JS.API.STREAM.NAMES' \
  --allow-pub '$JS.API.STREAM.INFO.*' \
  --allow-pub '$JS.API.STREAM.CREATE.*' \
  --allow-pub '$JS.API.STREAM.UPDATE.*' \
  --allow-pub '$JS.API.STREAM.PURGE.*' \
  --allow-pub '$JS.API.STREAM.MSG.GET.*' \
  --allow-pub '$JS.API.STREAM.MSG.DELETE.*' \
  --allow-pub '$JS.API.DIRECT.GET.>' \
  --allow-pub '$JS.API.CONSUMER.CREATE.>' \
  --allow-pub '$JS.API.CONSUMER.INFO.*.*' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.*.*' \
  --allow-pub '$JS.API.CONSUMER.DELETE.*.*' \
  --allow-pub '$JS.FC.>' \
  --allow-pub '$SYS.REQ.USER.INFO' \
  --allow-pub '$SYS.REQ.SERVER.PING.JSZ' \
  --allow-pub 'weir.operator.>' \
  --allow-pub '$SRV.>' \
  --allow-sub '_INBOX.worker.>' \
  --allow-sub 'weir.jobs.>' \
  --allow-sub 'weir.operator.>' \
  --allow-sub 'weir.gate.>' \
  --allow-sub '$SRV.>'

user "$ACCOUNT" operator \
  --allow-pub 'weir.operator.>' \
  --allow-pub 'weir.jobs.>' \
  --allow-pub 'weir.events.config.>' \
  --allow-pub 'weir.events.held.>' \
  --allow-pub 'weir.events.resumed.>' \
  --allow-pub 'weir.events.redriven.>' \
  --allow-pub 'weir.events.purged.>' \
  --allow-pub 'weir.dead.>' \
  --allow-pub '$KV.weir_config.>' \
  --allow-pub '$KV.weir_control.>' \
  --allow-pub '$KV.weir_leases.member.*' \
  --allow-pub '$JS.API.INFO' \
  --allow-pub '$JS.API.STREAM.NAMES' \
  --allow-pub '$JS.API.STREAM.LIST' \
  --allow-pub '$JS.API.STREAM.INFO.*' \
  --allow-pub '$JS.API.STREAM.CREATE.KV_weir_config' \
  --allow-pub '$JS.API.STREAM.UPDATE.KV_weir_config' \
  --allow-pub '$JS.API.STREAM.MSG.GET.*' \
  --allow-pub '$JS.API.DIRECT.GET.>' \
  --allow-pub '$JS.API.STREAM.MSG.DELETE.WEIR_DEAD' \
  --allow-pub '$JS.API.STREAM.PURGE.WEIR_DEAD' \
  --allow-pub '$JS.API.CONSUMER.CREATE.>' \
  --allow-pub '$JS.API.CONSUMER.INFO.*.*' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.*.*' \
  --allow-pub '$JS.API.CONSUMER.DELETE.*.*' \
  --allow-pub '$JS.FC.>' \
  --allow-pub '$SRV.>' \
  --allow-pub '$SYS.REQ.SERVER.PING.JSZ' \
  --allow-sub '_INBOX.operator.>' \
  --allow-sub 'weir.events.>'

user "$ACCOUNT" mover \
  --allow-pub '$JS.API.INFO' \
  --allow-pub '$JS.API.STREAM.NAMES' \
  --allow-pub '$JS.API.STREAM.LIST' \
  --allow-pub '$JS.API.STREAM.INFO.*' \
  --allow-pub '$JS.API.STREAM.SNAPSHOT.*' \
  --allow-pub '$JS.API.STREAM.RESTORE.*' \
  --allow-pub '$JS.SNAPSHOT.>' \
  --allow-pub '$JS.API.STREAM.DELETE.*' \
  --allow-pub '$JS.API.STREAM.UPDATE.*' \
  --allow-pub '$JS.API.STREAM.CREATE.KV_weir_move' \
  --allow-pub '$JS.API.STREAM.MSG.GET.KV_weir_move' \
  --allow-pub '$JS.API.STREAM.MSG.GET.KV_weir_config' \
  --allow-pub '$KV.weir_move.>' \
  --allow-pub '$JS.API.CONSUMER.CREATE.KV_weir_config.>' \
  --allow-pub '$JS.API.CONSUMER.DELETE.KV_weir_config.*' \
  --allow-pub '$JS.API.CONSUMER.CREATE.KV_weir_leases.>' \
  --allow-pub '$JS.API.CONSUMER.DELETE.KV_weir_leases.*' \
  --allow-pub '$JS.API.STREAM.MSG.GET.KV_weir_leases' \
  --allow-pub '$KV.weir_leases.member.*' \
  --allow-pub '$JS.FC.>' \
  --allow-pub '$SRV.PING' \
  --allow-sub '_INBOX.mover.>'

account "$VIEWERS"
viewers=$(nsc describe account "$VIEWERS" --field sub | tr -d '"')
if [ -z "$viewers" ]; then
  echo "nsc.sh: nsc does not tell the key of account $VIEWERS" >&2
  exit 1
fi
tokens=$(mktemp -d)
trap 'rm -rf "$tokens"' EXIT
trap 'exit 1' HUP INT TERM    # not every shell goes through EXIT then

# give makes the viewers import a subject that needs a token of the account: service|stream, its subject, its subject for them, its answers.
give() {
  if has "$ACCOUNT" exports "$2"; then
    :
  elif [ "$1" = service ]; then
    nsc add export --account "$ACCOUNT" --name "$2" --subject "$2" --private --service --response-type "$4"
  else
    nsc add export --account "$ACCOUNT" --name "$2" --subject "$2" --private
  fi
  if has "$VIEWERS" imports "$2"; then
    return
  fi
  nsc generate activation --account "$ACCOUNT" --target-account "$viewers" --subject "$2" --output-file "$tokens/one"
  nsc add import --account "$VIEWERS" --name "$2" --token "$tokens/one" --local-subject "$3"
  rm "$tokens/one"
}

give service 'weir.operator.keys.*' 'weir.operator.keys.*' Stream
give service 'weir.operator.show.*.*' 'weir.operator.show.*.*' Stream
give service 'weir.operator.status' 'weir.operator.status' Stream
give service 'weir.operator.find.*' 'weir.operator.find.*' Stream
give service 'weir.operator.jobs' 'weir.operator.jobs' Stream
give service 'weir.operator.ended' 'weir.operator.ended' Singleton
give service 'weir.operator.traces' 'weir.operator.traces' Singleton
give service 'weir.operator.spent' 'weir.operator.spent' Singleton
give service 'weir.operator.use.*' 'weir.operator.use.*' Singleton
give service '$SRV.PING' '$SRV.PING' Stream
give service '$SRV.INFO' '$SRV.INFO' Stream
give service '$SRV.STATS' '$SRV.STATS' Stream
give service '$SRV.PING.>' '$SRV.PING.>' Stream
give service '$SRV.INFO.>' '$SRV.INFO.>' Stream
give service '$SRV.STATS.>' '$SRV.STATS.>' Stream
give service '$JS.API.INFO' '$JS.API.INFO' Singleton
give service '$JS.API.STREAM.NAMES' '$JS.API.STREAM.NAMES' Singleton
give service '$JS.API.STREAM.LIST' '$JS.API.STREAM.LIST' Singleton
give service '$JS.API.STREAM.INFO.*' '$JS.API.STREAM.INFO.*' Singleton
give service '$JS.API.STREAM.MSG.GET.WEIR_DEAD' '$JS.API.STREAM.MSG.GET.WEIR_DEAD' Singleton
give service '$JS.API.STREAM.MSG.GET.WEIR_RESULTS' '$JS.API.STREAM.MSG.GET.WEIR_RESULTS' Singleton
give service '$JS.API.STREAM.MSG.GET.WEIR_CALLS' '$JS.API.STREAM.MSG.GET.WEIR_CALLS' Singleton
give service '$JS.API.STREAM.MSG.GET.WEIR_EVENTS' '$JS.API.STREAM.MSG.GET.WEIR_EVENTS' Singleton
give service '$JS.API.STREAM.MSG.GET.KV_weir_config' '$JS.API.STREAM.MSG.GET.KV_weir_config' Singleton
give service '$JS.API.DIRECT.GET.WEIR_DEAD' '$JS.API.DIRECT.GET.WEIR_DEAD' Singleton
give service '$JS.API.DIRECT.GET.WEIR_RESULTS' '$JS.API.DIRECT.GET.WEIR_RESULTS' Singleton
give service '$JS.API.DIRECT.GET.WEIR_CALLS' '$JS.API.DIRECT.GET.WEIR_CALLS' Singleton
give service '$JS.API.DIRECT.GET.WEIR_EVENTS' '$JS.API.DIRECT.GET.WEIR_EVENTS' Singleton
give service '$JS.API.DIRECT.GET.KV_weir_config' '$JS.API.DIRECT.GET.KV_weir_config' Singleton
give service '$JS.API.DIRECT.GET.WEIR_DEAD.>' '$JS.API.DIRECT.GET.WEIR_DEAD.>' Singleton
give service '$JS.API.DIRECT.GET.WEIR_RESULTS.>' '$JS.API.DIRECT.GET.WEIR_RESULTS.>' Singleton
give service '$JS.API.DIRECT.GET.WEIR_CALLS.>' '$JS.API.DIRECT.GET.WEIR_CALLS.>' Singleton
give service '$JS.API.DIRECT.GET.WEIR_EVENTS.>' '$JS.API.DIRECT.GET.WEIR_EVENTS.>' Singleton
give service '$JS.API.DIRECT.GET.KV_weir_config.>' '$JS.API.DIRECT.GET.KV_weir_config.>' Singleton
give service '$JS.API.DIRECT.GET.KV_weir_control.$KV.weir_control.ledger' '$JS.API.DIRECT.GET.KV_weir_control.$KV.weir_control.ledger' Singleton
give service '$JS.API.DIRECT.GET.KV_weir_control.$KV.weir_control.ledger.damage' '$JS.API.DIRECT.GET.KV_weir_control.$KV.weir_control.ledger.damage' Singleton
give service 'weir.gate.make.WEIR_DEAD.>' '$JS.API.CONSUMER.CREATE.WEIR_DEAD.>' Singleton
give service 'weir.gate.make.WEIR_RESULTS.>' '$JS.API.CONSUMER.CREATE.WEIR_RESULTS.>' Singleton
give service 'weir.gate.make.WEIR_CALLS.>' '$JS.API.CONSUMER.CREATE.WEIR_CALLS.>' Singleton
give service 'weir.gate.make.WEIR_EVENTS.>' '$JS.API.CONSUMER.CREATE.WEIR_EVENTS.>' Singleton
give service 'weir.gate.make.KV_weir_config.>' '$JS.API.CONSUMER.CREATE.KV_weir_config.>' Singleton
give service '$JS.API.CONSUMER.INFO.WEIR_DEAD.*' '$JS.API.CONSUMER.INFO.WEIR_DEAD.*' Singleton
give service '$JS.API.CONSUMER.INFO.WEIR_RESULTS.*' '$JS.API.CONSUMER.INFO.WEIR_RESULTS.*' Singleton
give service '$JS.API.CONSUMER.INFO.WEIR_CALLS.*' '$JS.API.CONSUMER.INFO.WEIR_CALLS.*' Singleton
give service '$JS.API.CONSUMER.INFO.WEIR_EVENTS.*' '$JS.API.CONSUMER.INFO.WEIR_EVENTS.*' Singleton
give service '$JS.API.CONSUMER.INFO.KV_weir_config.*' '$JS.API.CONSUMER.INFO.KV_weir_config.*' Singleton
give service '$JS.API.CONSUMER.MSG.NEXT.WEIR_DEAD.*' '$JS.API.CONSUMER.MSG.NEXT.WEIR_DEAD.*' Stream
give service '$JS.API.CONSUMER.MSG.NEXT.WEIR_RESULTS.*' '$JS.API.CONSUMER.MSG.NEXT.WEIR_RESULTS.*' Stream
give service '$JS.API.CONSUMER.MSG.NEXT.WEIR_CALLS.*' '$JS.API.CONSUMER.MSG.NEXT.WEIR_CALLS.*' Stream
give service '$JS.API.CONSUMER.MSG.NEXT.WEIR_EVENTS.*' '$JS.API.CONSUMER.MSG.NEXT.WEIR_EVENTS.*' Stream
give service 'weir.gate.drop.WEIR_DEAD.*' '$JS.API.CONSUMER.DELETE.WEIR_DEAD.*' Singleton
give service 'weir.gate.drop.WEIR_RESULTS.*' '$JS.API.CONSUMER.DELETE.WEIR_RESULTS.*' Singleton
give service 'weir.gate.drop.WEIR_CALLS.*' '$JS.API.CONSUMER.DELETE.WEIR_CALLS.*' Singleton
give service 'weir.gate.drop.WEIR_EVENTS.*' '$JS.API.CONSUMER.DELETE.WEIR_EVENTS.*' Singleton
give service 'weir.gate.drop.KV_weir_config.*' '$JS.API.CONSUMER.DELETE.KV_weir_config.*' Singleton
give service '$JS.FC.>' '$JS.FC.>' Singleton
give stream 'weir.events.>' 'weir.events.>'
give stream 'weir.reply._INBOX.viewer.>' '_INBOX.viewer.>'

user "$VIEWERS" viewer \
  --allow-pub 'weir.operator.keys.*' \
  --allow-pub 'weir.operator.show.*.*' \
  --allow-pub 'weir.operator.status' \
  --allow-pub 'weir.operator.find.*' \
  --allow-pub 'weir.operator.jobs' \
  --allow-pub 'weir.operator.ended' \
  --allow-pub 'weir.operator.traces' \
  --allow-pub 'weir.operator.spent' \
  --allow-pub 'weir.operator.use.*' \
  --allow-pub '$SRV.PING' \
  --allow-pub '$SRV.INFO' \
  --allow-pub '$SRV.STATS' \
  --allow-pub '$SRV.PING.>' \
  --allow-pub '$SRV.INFO.>' \
  --allow-pub '$SRV.STATS.>' \
  --allow-pub '$JS.API.INFO' \
  --allow-pub '$JS.API.STREAM.NAMES' \
  --allow-pub '$JS.API.STREAM.LIST' \
  --allow-pub '$JS.API.STREAM.INFO.*' \
  --allow-pub '$JS.API.STREAM.MSG.GET.WEIR_DEAD' \
  --allow-pub '$JS.API.STREAM.MSG.GET.WEIR_RESULTS' \
  --allow-pub '$JS.API.STREAM.MSG.GET.WEIR_CALLS' \
  --allow-pub '$JS.API.STREAM.MSG.GET.WEIR_EVENTS' \
  --allow-pub '$JS.API.STREAM.MSG.GET.KV_weir_config' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_DEAD' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_RESULTS' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_CALLS' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_EVENTS' \
  --allow-pub '$JS.API.DIRECT.GET.KV_weir_config' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_DEAD.>' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_RESULTS.>' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_CALLS.>' \
  --allow-pub '$JS.API.DIRECT.GET.WEIR_EVENTS.>' \
  --allow-pub '$JS.API.DIRECT.GET.KV_weir_config.>' \
  --allow-pub '$JS.API.DIRECT.GET.KV_weir_control.$KV.weir_control.ledger' \
  --allow-pub '$JS.API.DIRECT.GET.KV_weir_control.$KV.weir_control.ledger.damage' \
  --allow-pub '$JS.API.CONSUMER.CREATE.WEIR_DEAD.>' \
  --allow-pub '$JS.API.CONSUMER.CREATE.WEIR_RESULTS.>' \
  --allow-pub '$JS.API.CONSUMER.CREATE.WEIR_CALLS.>' \
  --allow-pub '$JS.API.CONSUMER.CREATE.WEIR_EVENTS.>' \
  --allow-pub '$JS.API.CONSUMER.CREATE.KV_weir_config.>' \
  --allow-pub '$JS.API.CONSUMER.INFO.WEIR_DEAD.*' \
  --allow-pub '$JS.API.CONSUMER.INFO.WEIR_RESULTS.*' \
  --allow-pub '$JS.API.CONSUMER.INFO.WEIR_CALLS.*' \
  --allow-pub '$JS.API.CONSUMER.INFO.WEIR_EVENTS.*' \
  --allow-pub '$JS.API.CONSUMER.INFO.KV_weir_config.*' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.WEIR_DEAD.*' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.WEIR_RESULTS.*' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.WEIR_CALLS.*' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.WEIR_EVENTS.*' \
  --allow-pub '$JS.API.CONSUMER.DELETE.WEIR_DEAD.*' \
  --allow-pub '$JS.API.CONSUMER.DELETE.WEIR_RESULTS.*' \
  --allow-pub '$JS.API.CONSUMER.DELETE.WEIR_CALLS.*' \
  --allow-pub '$JS.API.CONSUMER.DELETE.WEIR_EVENTS.*' \
  --allow-pub '$JS.API.CONSUMER.DELETE.KV_weir_config.*' \
  --allow-pub '$JS.FC.>' \
  --allow-sub '_INBOX.viewer.>' \
  --allow-sub 'weir.events.>'
