package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

const (
	controlEnv     = "FENCEPROXY_CONTROL"
	defaultControl = "http://127.0.0.1:8081"
	// clientTimeout bounds one call. None of them waits on the server.
	clientTimeout = 30 * time.Second
	// maxAnswer bounds what is read of an answer: a full page of jobs, each
	// with the largest result.
	maxAnswer = (wire.MaxPage + 1) * 2 * wire.MaxResult
)

// apiFlags are the flags of every command that speaks to a running proxy.
type apiFlags struct {
	credentials
	control string
	json    bool
}

// add registers the flags for the command and all below it.
func (f *apiFlags) add(cmd *cobra.Command) {
	control := os.Getenv(controlEnv)
	if control == "" {
		control = defaultControl
	}
	cmd.PersistentFlags().StringVar(&f.control, "control", control, "URL of the control listener; $"+controlEnv+" sets the default")
	f.credentials.add(cmd.PersistentFlags())
	cmd.PersistentFlags().BoolVar(&f.json, "json", false, "print the API's own JSON")
}

// client calls the API of a running proxy.
type client struct {
	base  string
	http  *http.Client
	token func() (string, error)
}

// client returns the client for the flags. Close it.
func (f *apiFlags) client() (*client, error) {
	u, err := url.Parse(f.control)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--control %q is not a URL such as %s", f.control, defaultControl)
	}
	secure, err := f.tls()
	if err != nil {
		return nil, err
	}
	c := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure},
		Timeout:       clientTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &client{base: strings.TrimRight(f.control, "/"), http: c, token: f.token()}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// get and post call an endpoint, read its answer into out, and return it as it came. The
// error of a refusal is its detail.
func (c *client) get(ctx context.Context, path string, query url.Values, out any) ([]byte, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	return c.do(req, out)
}

func (c *client) post(ctx context.Context, path string, in, out any) ([]byte, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	return c.do(req, out)
}

func (c *client) do(req *http.Request, out any) ([]byte, error) {
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which follows
		}
		return nil, fmt.Errorf("call %s: %w; is fenceproxy running, and does --control name its control listener?", c.base, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing can be lost by closing what was read
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		if p, ok := wire.ReadProblem(resp); ok {
			return nil, refusalOf(p)
		}
		return nil, strangerError(c.base, resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, strangerError(c.base, resp)
	}
	return body, nil
}

func strangerError(base string, resp *http.Response) error {
	return fmt.Errorf("%s answered %s with %q, which is no answer of a control listener; check --control", base, resp.Status, resp.Header.Get("Content-Type"))
}

// apiError is a refusal by the API.
type apiError struct{ problem wire.Problem }

func refusalOf(p wire.Problem) error { return &apiError{p} }

// Error returns the detail, which says what to do, and the code to look up.
func (e *apiError) Error() string {
	s := fmt.Sprintf("%s (%s)", e.problem.Detail, e.problem.Code)
	if e.problem.Code == wire.CodeUnauthenticated.Name {
		s += "; this command takes them from --token-file, $" + tokenEnv + ", or --cert-file and --key-file"
	}
	if e.problem.RetryAfter > 0 {
		s += fmt.Sprintf("; try again in %v", e.problem.RetryAfter)
	}
	return s
}
