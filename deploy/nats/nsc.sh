#!/bin/sh
# The roles of accounts.conf for a server in operator mode: the same lists, as users of an account made with nsc.
# Run it once with the operator's keys at hand; see https://docs.nats.io/using-nats/nats-tools/nsc
#
#   ACCOUNT=WEIR deploy/nats/nsc.sh && nsc push -A
#   nsc generate creds -a WEIR -n worker > worker.creds     # WEIR_NATS_CREDS=worker.creds WEIR_NATS_INBOX=_INBOX.worker
set -eu
ACCOUNT=${ACCOUNT:-WEIR}

nsc add account "$ACCOUNT"
nsc edit account "$ACCOUNT" --js-enable 0    # no tiers: streams of one replica and of three

nsc add user --account "$ACCOUNT" --name producer \
  --allow-pub 'weir.jobs.>' \
  --allow-sub '_INBOX.producer.>'

nsc add user --account "$ACCOUNT" --name worker \
  --allow-pub '_INBOX.>' \
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
  --allow-sub '_INBOX.worker.>' \
  --allow-sub 'weir.jobs.>' \
  --allow-sub 'weir.operator.>' \
  --allow-sub '$SRV.>'

nsc add user --account "$ACCOUNT" --name operator \
  --allow-pub 'weir.operator.>' \
  --allow-pub 'weir.jobs.>' \
  --allow-pub 'weir.events.config.>' \
  --allow-pub 'weir.events.held.>' \
  --allow-pub 'weir.events.resumed.>' \
  --allow-pub 'weir.events.redriven.>' \
  --allow-pub 'weir.events.purged.>' \
  --allow-pub 'weir.events.held.>' \
  --allow-pub 'weir.events.resumed.>' \
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
  --allow-sub '_INBOX.operator.>' \
  --allow-sub 'weir.events.>'

nsc add user --account "$ACCOUNT" --name viewer \
  --allow-pub 'weir.operator.keys.*' \
  --allow-pub 'weir.operator.show.*.*' \
  --allow-pub 'weir.operator.status' \
  --allow-pub 'weir.operator.find.*' \
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
  --allow-pub '$SRV.>' \
  --allow-sub '_INBOX.viewer.>' \
  --allow-sub 'weir.events.>'

nsc add user --account "$ACCOUNT" --name mover \
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
  --allow-pub '$JS.API.DIRECT.GET.KV_weir_move.>' \
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
