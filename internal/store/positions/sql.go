package positions

// The texts run on PostgreSQL and on SQLite.
const (
	// Select takes identity and address.
	Select = `select position from positions where identity = $1 and address = $2`
	// SelectOf takes an identity.
	SelectOf = `select identity, address, position, epoch from positions where identity = $1 order by address`
	// SelectFrom takes the lowest address.
	SelectFrom = `select identity, address, position, epoch from positions
		where address >= $1 order by address, identity`
	// SelectBetween takes the lowest address and the one behind the highest.
	SelectBetween = `select identity, address, position, epoch from positions
		where address >= $1 and address < $2 order by address, identity`
	// Expire takes a time in Unix milliseconds and how many rows to remove at
	// most. The time is asked for twice: PostgreSQL looks at a row that was
	// moved meanwhile once more, but only with the outer condition.
	Expire = `delete from positions where moved_at < $1 and (identity, address) in
		(select identity, address from positions where moved_at < $1 limit $2)`

	// Insert begins the statement that stores commits; the engine says of what
	// and appends [OnConflict].
	Insert = `insert into positions (identity, address, position, epoch, moved_at) `
	// OnConflict is the guard of delivery rule C1: an older epoch changes
	// nothing, a newer one is stored, and the position never falls.
	OnConflict = ` on conflict (identity, address) do update set
			position = case when excluded.position > positions.position then excluded.position else positions.position end,
			epoch = excluded.epoch,
			moved_at = excluded.moved_at
		where excluded.epoch > positions.epoch
			or (excluded.epoch = positions.epoch and excluded.position > positions.position)`
)

// ExpireBatch is how many rows one [Expire] removes, so that nobody waits long
// for it.
const ExpireBatch = 1000
