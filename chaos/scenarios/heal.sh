# Hypothesis: an endpoint that the fleet took out returns through one small probe.
# Expect: out on all three; after healing exactly one probe of the whole fleet; in on all three.
convict 1 2
wait_for 2 "gw-3 follows" is_out 3
heal
before=$(mock_count probes)
for n in 1 2 3; do wait_for 30 "it returns on gw-$n" is_in "$n"; done
probes=$(($(mock_count probes) - before))
expect "probes" "$probes" -eq 1
echo "$probes probe"
