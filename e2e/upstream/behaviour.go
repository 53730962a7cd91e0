package upstream

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// behaviour is how one request is to be served. Its written form is a list of words separated by blanks:
//
//	status=500           answer with this status; a 4xx means that nothing was executed
//	delay=5s             wait between execution and answer
//	hang                 wait until Server.Release names this request's id
//	early=413            answer before the body is read
//	reset                read the whole request, do nothing, reset the connection
//	reset-after-execute  execute, then reset the connection without an answer
//	reset-midway=1000    reset the connection after this many bytes of the body
type behaviour struct {
	status            int
	delay             time.Duration
	hang              bool
	early             int
	reset             bool
	resetAfterExecute bool
	resetMidway       int64 // -1: not asked for
}

func parseBehaviour(text string) (behaviour, error) {
	b := behaviour{status: http.StatusOK, resetMidway: -1}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "status":
			b.status, err = parseStatus(value)
		case "early":
			b.early, err = parseStatus(value)
		case "delay":
			b.delay, err = time.ParseDuration(value)
		case "reset-midway":
			b.resetMidway, err = strconv.ParseInt(value, 10, 64)
		case "hang":
			b.hang = true
		case "reset":
			b.reset = true
		case "reset-after-execute":
			b.resetAfterExecute = true
		default:
			err = fmt.Errorf("unknown word")
		}
		if err != nil {
			return behaviour{}, fmt.Errorf("read %s %q: %w", HeaderDo, word, err)
		}
	}
	return b, nil
}

func parseStatus(value string) (int, error) {
	status, err := strconv.Atoi(value)
	if err != nil {
		return 0, err
	}
	if status < 200 || status > 599 {
		return 0, fmt.Errorf("status %d is not a final one", status)
	}
	return status, nil
}

// executes tells whether a request served in this way has an effect.
func (b behaviour) executes() bool {
	return !b.reset && b.early == 0 && (b.status < 400 || b.status > 499)
}
