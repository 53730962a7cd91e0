//go:build linux

package peers_test

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// nginx is a server for WebDAV and, with git's own CGI program, for repositories.
type nginx struct {
	socket string
	dav    string // the files under /dav/
	repos  string // the repositories under /git/
	log    string // one line per request that it has worked on
}

// startNginx starts nginx on a socket, and fcgiwrap for git.
func startNginx(t *testing.T) *nginx {
	t.Helper()
	dir := short(t)
	n := &nginx{socket: filepath.Join(dir, "http.sock"), dav: filepath.Join(dir, "dav"), repos: filepath.Join(dir, "git"),
		log: filepath.Join(dir, "access.log")}
	for _, sub := range []string{n.dav, n.repos, filepath.Join(dir, "tmp")} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// Each works on one request at a time. Neither they nor nginx fork, so that nothing is left if the tests are killed.
	var gates strings.Builder
	for i := range 3 {
		gate := filepath.Join(dir, fmt.Sprintf("cgi%d.sock", i))
		answers(t, launch(t, dir, nil, "fcgiwrap", "-s", "unix:"+gate), gate)
		fmt.Fprintf(&gates, "server unix:%s; ", gate)
	}

	const module = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so"
	if _, err := os.Stat(module); err != nil {
		t.Fatalf("nginx has no dav-ext module: run make peers: %v", err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(nginxConfig, module, me.Username, dir, n.socket, n.repos, filepath.Dir(program(t, "git-http-backend")), gates.String())
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, dir, nil, "nginx", "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", file)
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"access.log", "error.log"} {
				text, _ := os.ReadFile(filepath.Join(dir, name))
				t.Logf("nginx's %s:\n%s", name, text)
			}
		}
	})
	answers(t, p, n.socket)
	return n
}

// nginxConfig has: the module, the user, the directory, the socket, the repositories, git's programs, the gates to them.
const nginxConfig = `load_module %[1]s;
daemon off;
master_process off;
user %[2]s;
pid %[3]s/nginx.pid;
error_log %[3]s/error.log info;
events { worker_connections 256; }
http {
  log_format peers '$request_method $uri $status expect=$http_expect te=$http_transfer_encoding coding=$http_content_encoding job=$http_fence_job_id';
  access_log %[3]s/access.log peers;
  client_body_temp_path %[3]s/tmp/body;
  proxy_temp_path %[3]s/tmp/proxy;
  fastcgi_temp_path %[3]s/tmp/fastcgi;
  uwsgi_temp_path %[3]s/tmp/uwsgi;
  scgi_temp_path %[3]s/tmp/scgi;
  client_max_body_size 0;
  upstream git { least_conn; %[7]s}
  server {
    listen unix:%[4]s;
    root %[3]s;
    location /dav/ {
      dav_methods PUT DELETE MKCOL COPY MOVE;
      dav_ext_methods PROPFIND OPTIONS;
      create_full_put_path on;
    }
    location ~ ^/git(/.*)$ {
      fastcgi_pass git;
      fastcgi_param SCRIPT_FILENAME %[6]s/git-http-backend;
      fastcgi_param GIT_PROJECT_ROOT %[5]s;
      fastcgi_param GIT_HTTP_EXPORT_ALL 1;
      fastcgi_param PATH_INFO $1;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param REMOTE_USER worker;
      fastcgi_param REMOTE_ADDR 127.0.0.1;
    }
  }
}
`
