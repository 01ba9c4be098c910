-- Take back the claim of a caller that waits no longer. Done twice it is the same.
-- KEYS: the namespace. ARGV: 1 prefix, 2 now or '', 3 id of the claim, 4 entity and 5 resource of the bucket that it is in.
local claims = make_claims(ARGV[1], clock(ARGV[2]), { id = ARGV[3] })
claims.read(1, ARGV[4], ARGV[5])
claims.stand(nil, nil, { ARGV[4] }, { ARGV[5] })
return 1
