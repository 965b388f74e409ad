package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"
)

// Everything that is decided about leases is decided by scripts in Redis, one
// at a time and by one clock, the server's.
var (
	//go:embed lua/prelude.lua
	prelude string
	//go:embed lua/beat.lua
	beatSource string
	//go:embed lua/claim.lua
	claimSource string
	//go:embed lua/take.lua
	takeSource string
	//go:embed lua/register.lua
	registerSource string
	//go:embed lua/release.lua
	releaseSource string
	//go:embed lua/yield.lua
	yieldSource string
	//go:embed lua/mark.lua
	markSource string
	//go:embed lua/confirm.lua
	confirmSource string
	//go:embed lua/find.lua
	findSource string
	//go:embed lua/leave.lua
	leaveSource string
	//go:embed lua/scan.lua
	scanSource string
	//go:embed lua/work.lua
	workSource string
	//go:embed lua/sweep.lua
	sweepSource string
	//go:embed lua/count.lua
	countSource string

	beatScript     = goredis.NewScript(prelude + beatSource)
	claimScript    = goredis.NewScript(prelude + claimSource)
	takeScript     = goredis.NewScript(prelude + takeSource)
	registerScript = goredis.NewScript(prelude + registerSource)
	releaseScript  = goredis.NewScript(prelude + releaseSource)
	yieldScript    = goredis.NewScript(prelude + yieldSource)
	markScript     = goredis.NewScript(prelude + markSource)
	confirmScript  = goredis.NewScript(prelude + confirmSource)
	findScript     = goredis.NewScript(prelude + findSource)
	leaveScript    = goredis.NewScript(prelude + leaveSource)
	scanScript     = goredis.NewScript(prelude + scanSource)
	workScript     = goredis.NewScript(prelude + workSource)
	sweepScript    = goredis.NewScript(prelude + sweepSource)
	countScript    = goredis.NewScript(prelude + countSource)
)

// Statuses of scripts, beside "OK".
const (
	statusOK     = "OK"
	statusOther  = "INC"   // another incarnation
	statusDead   = "DEAD"  // this instance has no heartbeat there
	statusWait   = "WAIT"  // leases are not handed out yet
	statusTomb   = "TOMB"  // the session was given up
	statusUsed   = "USED"  // the session has a lease
	statusHeld   = "HELD"  // another one holds a name
	statusTake   = "TAKE"  // the holder may be taken over from
	statusMoved  = "MOVED" // it was another holder meanwhile
	statusDouble = "DUP"   // another instance has the name
	statusNone   = "NONE"  // no such session
	statusNew    = "NEW"   // the caller has not entered the group
	statusLate   = "LATE"  // a later round has been
)

var errReply = errors.New("a script answered in an unknown form")

// reply is what a script returned: a status, and values behind it. A getter
// for what is not there returns the zero value and sets bad.
type reply struct {
	status string
	values []any
	bad    bool
}

// run runs a script under the given incarnation.
func (p *Presence) run(ctx context.Context, s *goredis.Script, incarnation string, args ...any) (reply, error) {
	return p.runOn(ctx, p.client, s, incarnation, args...)
}

// pulsed runs a script on the heartbeat's own connection, which no crowd of
// claims keeps waiting.
func (p *Presence) pulsed(ctx context.Context, s *goredis.Script, incarnation string, args ...any) (reply, error) {
	return p.runOn(ctx, p.pulse, s, incarnation, args...)
}

func (p *Presence) runOn(ctx context.Context, client *goredis.Client, s *goredis.Script, incarnation string, args ...any) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := s.Run(ctx, client, []string{p.base}, p.args(incarnation, args)...).Result()
	return parseReply(v, err)
}

func (p *Presence) args(incarnation string, args []any) []any {
	return append([]any{p.serverNow(), incarnation, p.self.ID, p.o.TTL.Milliseconds()}, args...)
}

func parseReply(v any, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	list, _ := v.([]any)
	if len(list) == 0 {
		return reply{}, errReply
	}
	status, ok := list[0].(string)
	if !ok {
		return reply{}, errReply
	}
	return reply{status: status, values: list[1:]}, nil
}

func (r *reply) value(i int) any {
	if i >= len(r.values) {
		r.bad = true
		return nil
	}
	return r.values[i]
}

func (r *reply) text(i int) string {
	s, ok := r.value(i).(string)
	r.bad = r.bad || !ok
	return s
}

func (r *reply) number(i int) int64 {
	n, ok := r.value(i).(int64)
	r.bad = r.bad || !ok
	return n
}

func (r *reply) list(i int) []string {
	values, ok := r.value(i).([]any)
	r.bad = r.bad || !ok
	list := make([]string, 0, len(values))
	for _, v := range values {
		s, ok := v.(string)
		r.bad = r.bad || !ok
		list = append(list, s)
	}
	return list
}

// err reports a reply that was not understood.
func (r *reply) err() error {
	if r.bad {
		return fmt.Errorf("%w: %s", errReply, r.status)
	}
	return nil
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
