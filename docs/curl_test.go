package docs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// request is a command line of curl, as far as the pages use it.
type request struct {
	method, url, body, output, format string
	header                            http.Header
	head, fail                        bool
	retries                           int
}

// standInForCurl is the test program under another name, for machines without curl. It knows the options that the pages
// use and refuses every other.
func standInForCurl(args []string) int {
	req, err := parseCurl(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "curl (stand-in):", err)
		return 2
	}
	for {
		code, err := req.do()
		if err == nil {
			return code
		}
		if req.retries--; req.retries < 0 {
			fmt.Fprintln(os.Stderr, "curl (stand-in):", err)
			return 7
		}
		time.Sleep(time.Second) // as --retry-delay 1 asks for: another process is starting
	}
}

func parseCurl(args []string) (request, error) {
	r := request{method: http.MethodGet, header: http.Header{"User-Agent": {"curl"}, "Accept": {"*/*"}}}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		value := func() string {
			if len(args) == 0 {
				return ""
			}
			v := args[0]
			args = args[1:]
			return v
		}
		switch arg {
		case "-sS", "--retry-connrefused":
		case "-fsS":
			r.fail = true
		case "-i":
			r.head = true
		case "-H":
			name, v, _ := strings.Cut(value(), ":")
			r.header.Set(name, strings.TrimSpace(v))
		case "-d":
			r.method, r.body = http.MethodPost, value()
			if r.header.Get("Content-Type") == "" {
				r.header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
		case "-o":
			r.output = value()
		case "-w":
			r.format = strings.ReplaceAll(value(), `\n`, "\n")
		case "--retry":
			n, err := strconv.Atoi(value())
			if err != nil {
				return r, err
			}
			r.retries = n
		case "--retry-delay":
			if value() != "1" {
				return r, errors.New("knows only --retry-delay 1")
			}
		default:
			if strings.HasPrefix(arg, "-") || r.url != "" {
				return r, fmt.Errorf("does not know %s", arg)
			}
			r.url = arg
		}
	}
	return r, nil
}

// do sends the request. An error means that there was no answer.
func (r *request) do() (code int, err error) {
	req, err := http.NewRequest(r.method, r.url, strings.NewReader(r.body))
	if err != nil {
		return 2, err
	}
	req.Header = r.header
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 7, err
	}
	defer res.Body.Close()
	if r.fail && res.StatusCode >= 400 {
		return 22, nil
	}
	out := os.Stdout
	if r.output != "" {
		if out, err = os.Create(r.output); err != nil {
			return 23, err
		}
		defer out.Close()
	}
	if r.head {
		fmt.Fprintf(out, "%s %s\r\n", res.Proto, res.Status)
		if err := res.Header.Write(out); err != nil {
			return 23, err
		}
		fmt.Fprint(out, "\r\n")
	}
	if _, err := io.Copy(out, res.Body); err != nil {
		return 18, err
	}
	fmt.Fprint(os.Stdout, strings.ReplaceAll(r.format, "%{http_code}", strconv.Itoa(res.StatusCode)))
	return 0, nil
}
