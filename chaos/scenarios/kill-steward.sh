# Hypothesis: the recovery does not hang on one node.
# Expect: the steward is killed before it probes; another probes, once; in on the two that are left.
convict 1 2
wait_for 2 "gw-3 follows" is_out 3
heal
before=$(mock_count probes)
killed=$(steward)
kill -9 "${node_id[$killed]}"
began=$SECONDS
for n in 1 2 3; do
  [ "$n" = "$killed" ] || wait_for 30 "it returns on gw-$n" is_in "$n"
done
probes=$(($(mock_count probes) - before))
expect "probes" "$probes" -eq 1
echo "gw-$killed killed, $probes probe by another, back after $((SECONDS - began)) s"
