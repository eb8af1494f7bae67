# Hypothesis: a killed gateway costs the clients of the others nothing and shrinks no electorate.
# Expect: no failed request on the others; lost within 10 s; the electorate stays three.
kill -9 "${node_id[3]}"
began=$SECONDS
is_lost() { [ "$(ask 1 members '[m["state"] for m in it["members"] if m["id"] == "gw-3"][0]')" = lost ]; }
until is_lost; do
  for n in 1 2; do chat "$n" >>others; done
  expect "seconds until it is lost" $((SECONDS - began)) -le 10
done
lost=$((SECONDS - began))
only_good others
expect "electorate" "$(ask 1 cluster 'it["electorate"]')" -eq 3
convict 1 2
echo "lost after $lost s; two of three still decide"
