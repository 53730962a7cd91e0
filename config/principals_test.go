package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	hashA = "5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592"
	hashB = "7d793037a0760186574b0282f2f435e77d793037a0760186574b0282f2f435e7"
)

// oneMore is a file with one good principal, to which lines are added from line 5 on.
const oneMore = "principals:\n  - name: a\n    token_sha256: \"" + hashA + "\"\n    roles: [worker]\n"

func TestPrincipalsAreReadAsTheyAreWritten(t *testing.T) {
	got, err := ParsePrincipals("auth.yaml", []byte(oneMore+`
  - {name: b, certificate: "spiffe://example/b", roles: [issuer, operator, viewer], namespace: n, jobs: [x-, y/]}
  - {name: c, token_sha256: `+strings.ToUpper(hashB)+`, certificate: c.example, roles: [viewer], jobs: ["*"]}
  - {name: d, certificate: d.example, roles: [viewer], jobs: [""]}
`))
	want := []Principal{
		{Name: "a", TokenSHA256: hashA, Roles: []string{"worker"}, Jobs: []string{""}},
		{Name: "b", Certificate: "spiffe://example/b", Roles: []string{"issuer", "operator", "viewer"}, Namespace: "n", Jobs: []string{"x-", "y/"}},
		{Name: "c", TokenSHA256: strings.ToUpper(hashB), Certificate: "c.example", Roles: []string{"viewer"}, Jobs: []string{""}},
		{Name: "d", Certificate: "d.example", Roles: []string{"viewer"}, Jobs: []string{""}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestEachFaultOfThePrincipalsNamesItsLineItsKeyAndTheCause(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"AnEmptyFile", "", "auth.yaml:1:1: principals: lists nobody: nobody could do anything"},
		{"NoPrincipal", "principals: []", "auth.yaml:1:1: principals: lists nobody: nobody could do anything"},
		{"NotAList", "principals: {name: a}", "auth.yaml:1:13: principals: wants a list of blocks, not a block of keys"},
		{"NotABlock", "principals: [a]", "auth.yaml:1:14: principals[0]: wants a block of keys, not text"},
		{"NothingInTheList", "principals:\n  -\n", "auth.yaml:1:1: principals[0]: has no value"},
		{"AnotherKeyAtTheTop", "users: []\n" + oneMore, "auth.yaml:1:1: users: unknown key"},
		{"AListAtTheTop", "- name: a", "auth.yaml:1:1: wants a block of keys, not a list"},
		{"BrokenYAML", "principals: [", "auth.yaml:1:13: this is not YAML: sequence end token ']' not found"},
		{"AMistypedKey", oneMore + "    job: [x]", "auth.yaml:5:5: principals[0].job: unknown key (did you mean jobs?)"},
		{"AKeyTwice", oneMore + "    name: b", "auth.yaml:5:5: principals[0].name: set twice, first in line 2"},
		{"NoName", "principals: [{token_sha256: " + hashA + ", roles: [worker]}]", "auth.yaml:1:14: principals[0].name: is missing: logs say who did something"},
		{"ALongName", "principals: [{name: " + strings.Repeat("a", 257) + ", certificate: c, roles: [worker]}]", "auth.yaml:1:21: principals[0].name: is longer than 256 bytes"},
		{"NoCredential", "principals: [{name: a, roles: [worker]}]", "auth.yaml:1:14: principals[0].token_sha256: is missing, and certificate too: how is this principal known?"},
		{"AShortHash", "principals: [{name: a, token_sha256: " + hashA[1:] + ", roles: [worker]}]", "auth.yaml:1:38: principals[0].token_sha256: is not a SHA-256: 64 hexadecimal digits"},
		{"AHashWithAnotherLetter", "principals: [{name: a, token_sha256: x" + hashA[1:] + ", roles: [worker]}]", "auth.yaml:1:38: principals[0].token_sha256: is not a SHA-256: 64 hexadecimal digits"},
		{"TheHashOfNothing", "principals: [{name: a, token_sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, roles: [worker]}]", "auth.yaml:1:38: principals[0].token_sha256: is the hash of an empty token"},
		{"ALongCertificate", "principals: [{name: a, certificate: " + strings.Repeat("a", 1025) + ", roles: [worker]}]", "auth.yaml:1:37: principals[0].certificate: is longer than 1024 bytes"},
		{"NoRole", "principals: [{name: a, certificate: c}]", "auth.yaml:1:14: principals[0].roles: is missing: list some of worker, issuer, operator, viewer"},
		{"EmptyRoles", "principals: [{name: a, certificate: c, roles: []}]", "auth.yaml:1:40: principals[0].roles: is missing: list some of worker, issuer, operator, viewer"},
		{"ARoleThatIsNone", "principals: [{name: a, certificate: c, roles: [worker, admin]}]", `auth.yaml:1:56: principals[0].roles[1]: "admin" is not one of worker, issuer, operator, viewer`},
		{"ARoleTwice", "principals: [{name: a, certificate: c, roles: [worker, worker]}]", "auth.yaml:1:56: principals[0].roles[1]: worker is in the list already"},
		{"ARoleThatIsNoList", "principals: [{name: a, certificate: c, roles: worker}]", "auth.yaml:1:47: principals[0].roles: wants a list, as in [a, b], not text"},
		{"ANamespaceWithABlank", oneMore + "    namespace: \"a b\"", `auth.yaml:5:16: principals[0].namespace: "a b" has more than printable ASCII, or a comma, a quote, a backslash or a blank`},
		{"NoPrefix", oneMore + "    jobs: []", `auth.yaml:5:5: principals[0].jobs: is empty: list prefixes of job ids, or "*" for all, or leave the key out for all`},
		{"AKeyWithoutPrefixes", oneMore + "    jobs:", `auth.yaml:5:5: principals[0].jobs: is empty: list prefixes of job ids, or "*" for all, or leave the key out for all`},
		{"APatternForAPrefix", oneMore + "    jobs: [\"billing-*\"]", `auth.yaml:5:12: principals[0].jobs[0]: "billing-*" has a *: a prefix stands for every id that begins with it, as in "billing-"`},
		{"APrefixThatNoJobHas", oneMore + "    jobs: [\"a b\"]", `auth.yaml:5:12: principals[0].jobs[0]: "a b" has more than printable ASCII, or a comma, a quote, a backslash or a blank`},
		{"ANameTwice", oneMore + "  - {name: a, certificate: c, roles: [worker]}", "auth.yaml:5:12: principals[1].name: is the name of principals[0] in line 2"},
		{"ATokenTwice", oneMore + "  - {name: b, token_sha256: " + strings.ToUpper(hashA) + ", roles: [worker]}", "auth.yaml:5:29: principals[1].token_sha256: is the token of principals[0] in line 3"},
		{"ACertificateTwice", "principals:\n  - {name: a, certificate: c, roles: [worker]}\n  - {name: b, certificate: c, roles: [worker]}", "auth.yaml:3:28: principals[1].certificate: is the certificate of principals[0] in line 2"},
		{"SeveralFaults", oneMore + "  - {name: a, token_sha256: x, roles: [x]}\n  - {}", "auth.yaml:5:12: principals[1].name: is the name of principals[0] in line 2\n" +
			"auth.yaml:5:29: principals[1].token_sha256: is not a SHA-256: 64 hexadecimal digits\n" +
			`auth.yaml:5:40: principals[1].roles[0]: "x" is not one of worker, issuer, operator, viewer` + "\n" +
			"auth.yaml:6:5: principals[2].name: is missing: logs say who did something\n" +
			"auth.yaml:6:5: principals[2].token_sha256: is missing, and certificate too: how is this principal known?\n" +
			"auth.yaml:6:5: principals[2].roles: is missing: list some of worker, issuer, operator, viewer"},
		{"AHugeFile", strings.Repeat("#", int(maxPrincipals)+1), "auth.yaml:1:1: the file is larger than 4MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParsePrincipals("auth.yaml", []byte(tt.data))
			var faults Faults
			if !errors.As(err, &faults) || got != nil {
				t.Fatalf("got %v, %v", got, err)
			}
			if faults.Error() != tt.want {
				t.Errorf("got\n%s\nwant\n%s", faults, tt.want)
			}
		})
	}
}

func TestNoFaultShowsWhatMayBeAToken(t *testing.T) {
	const secret = "s3cr3t-t0ken"
	for _, data := range []string{
		"principals: [{name: a, token_sha256: " + secret + ", roles: [worker]}]",
		"principals: [{name: a, token_sha256: [" + secret + "], roles: [worker]}]",
		"principals: [{name: a, token_sha256: {a: " + secret + "}, roles: [worker]}]",
		"principals: [{name: a, token: " + secret + ", roles: [worker]}]",
		"principals: [{name: a, token_sha256: \"" + secret + ", roles: [worker]}]",
		"principals: [{name: a, token_sha256: \"\\x01" + secret + "\", roles: [worker]}]",
		"principals: [{name: a, token_sha256: &x " + secret + ", roles: [worker]}]",
	} {
		if _, err := ParsePrincipals("auth.yaml", []byte(data)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", data, err)
		}
	}
}

func writeFile(t *testing.T, name, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadReadsThePrincipalsThatTheConfigurationNames(t *testing.T) {
	who := writeFile(t, "auth.yaml", oneMore)
	file := writeFile(t, "f.yaml", "auth: {file: "+who+"}\n"+minimal)
	c, err := Load(file, nil)
	if err != nil || len(c.Principals) != 1 || c.Principals[0].Name != "a" {
		t.Fatalf("%+v, %v", c, err)
	}
	printed, err := c.Redacted()
	if err != nil || strings.Contains(string(printed), hashA) || strings.Contains(string(printed), "rincipals:") {
		t.Errorf("the effective configuration shows principals, %v:\n%s", err, printed)
	}
	if c, err = ForUpstream("http://127.0.0.1:1", []string{"FENCEPROXY_AUTH_FILE=" + who}); err != nil || len(c.Principals) != 1 {
		t.Errorf("from the environment: %+v, %v", c, err)
	}
	if c, err = Parse("f.yaml", []byte("auth: {file: "+who+"}\n"+minimal), nil); err != nil || c.Principals != nil {
		t.Errorf("Parse reads another file: %+v, %v", c, err)
	}
}

func TestTheFaultsOfBothFilesAreReportedTogether(t *testing.T) {
	who := writeFile(t, "auth.yaml", "principals: [{name: a, roles: [worker]}]")
	file := writeFile(t, "f.yaml", "auth: {file: "+who+"}\ndrain: -1s\n"+minimal)
	_, err := Load(file, nil)
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	want := []string{
		who + ":1:14: principals[0].token_sha256: is missing, and certificate too: how is this principal known?",
		file + ":2:8: drain: -1s is negative",
	}
	got := strings.Split(faults.Error(), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestAFileOfPrincipalsThatIsNotThereIsAFault(t *testing.T) {
	file := writeFile(t, "f.yaml", minimal+"auth:\n  file: /nowhere/auth.yaml\n")
	_, err := Load(file, nil)
	var faults Faults
	if want := file + `:5:9: auth.file: cannot read "/nowhere/auth.yaml": no such file or directory`; !errors.As(err, &faults) || faults.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// FuzzParsePrincipals: reading never panics, every error is Faults that keep to their
// lines, and what was read keeps the rules.
func FuzzParsePrincipals(f *testing.F) {
	f.Add([]byte(oneMore))
	f.Add([]byte(oneMore + "  - {name: b, certificate: c, roles: [viewer], namespace: n, jobs: [a, \"*\", \"\"]}"))
	f.Add([]byte("principals: [{name: a, token_sha256: 1e5, roles: [x], jobs: }]"))
	f.Add([]byte("principals: &x\n- *x\n- !!str b\n---\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParsePrincipals("fuzz", data)
		if err != nil {
			faults, ok := err.(Faults)
			if !ok || len(faults) == 0 || got != nil {
				t.Fatalf("%v, %T %v", got, err, err)
			}
			for _, fault := range faults {
				if strings.Contains(fault.String(), "\n") {
					t.Errorf("the fault %q breaks its line", fault)
				}
			}
			return
		}
		names, tokens, certificates := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, p := range got {
			token := strings.ToLower(p.TokenSHA256)
			if p.Name == "" || names[p.Name] || len(p.Roles) == 0 || len(p.Jobs) == 0 || token == "" && p.Certificate == "" ||
				token != "" && (len(token) != 64 || tokens[token]) || p.Certificate != "" && certificates[p.Certificate] {
				t.Errorf("accepted %+v in %q", p, data)
			}
			names[p.Name], tokens[token], certificates[p.Certificate] = true, true, true
			for _, prefix := range p.Jobs {
				if strings.Contains(prefix, "*") {
					t.Errorf("a prefix with a * in %+v", p)
				}
			}
		}
	})
}
