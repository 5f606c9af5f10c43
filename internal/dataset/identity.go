package dataset

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// leastKey is the length of a text key below which the examples are needed to tell problems apart.
const leastKey = 40

// TextKey folds a statement to its letters and digits, in lower case after NFKC. Examples are left out if enough remains.
// It is empty for a text without letters and digits.
func TextKey(statement string) string {
	if key := fold(body(statement)); len(key) >= leastKey {
		return key
	}
	return fold(statement)
}

func fold(statement string) string {
	var b strings.Builder
	for _, r := range norm.NFKC.String(statement) {
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// URLKey folds what does not tell pages apart: scheme, www, host case, final slash, fragment, all queries but an id. Empty for
// what is no address.
func URLKey(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Host == "" {
		return ""
	}
	key := strings.TrimPrefix(strings.ToLower(u.Host), "www.") + strings.TrimRight(u.EscapedPath(), "/")
	if id := u.Query().Get("id"); id != "" {
		key += "?id=" + id
	}
	return key
}

// platforms gives the id of a problem on its platform: the groups of the expression, joined by +.
var platforms = []struct {
	name string
	re   *regexp.Regexp
}{
	{"codeforces", regexp.MustCompile(`(?i)^codeforces\.com/(?:problemset/problem|contest)/(\d+)(?:/problem)?/([A-Z]\d?|\d\d)$`)},
	{"codeforces-gym", regexp.MustCompile(`(?i)^codeforces\.com/gym/(\d+)/problem/([A-Z]\d?|\d\d)$`)},
	{"codechef", regexp.MustCompile(`(?i)^codechef\.com/(?:[^/]+/)?problems/([^/]+)$`)},
	{"atcoder", regexp.MustCompile(`(?i)^(?:[^/.]+\.contest\.)?atcoder\.jp/(?:contests/[^/]+/)?tasks/([^/]+)$`)},
	{"aizu", regexp.MustCompile(`(?i)^(?:judge\.u-aizu\.ac\.jp/onlinejudge/description\.jsp\?id=|onlinejudge\.u-aizu\.ac\.jp/problems/)(\w+)$`)},
	{"hackerrank", regexp.MustCompile(`(?i)^hackerrank\.com/(?:contests/[^/]+/)?challenges/([^/]+)(?:/problem)?$`)},
	{"hackerearth", regexp.MustCompile(`(?i)^hackerearth\.com/.*/([^/]+)$`)},
	{"geeksforgeeks", regexp.MustCompile(`(?i)^(?:practice\.)?geeksforgeeks\.org/problems/([^/]+)(?:/\d+)?$`)},
	{"leetcode", regexp.MustCompile(`(?i)^leetcode\.com/problems/([^/]+)(?:/description)?$`)},
	{"codewars", regexp.MustCompile(`(?i)^codewars\.com/kata/([0-9a-f]{24})`)},
	{"kattis", regexp.MustCompile(`(?i)^open\.kattis\.com/problems/([^/]+)$`)},
}

// upper are the platforms whose ids do not tell upper and lower case apart.
var upper = map[string]bool{"codeforces": true, "codeforces-gym": true, "codechef": true}

// PlatformID is the identity of a problem on its platform, for example codeforces:1492+B; empty if unknown.
func PlatformID(raw string) string {
	key := URLKey(raw)
	for _, p := range platforms {
		m := p.re.FindStringSubmatch(key)
		if m == nil {
			continue
		}
		id := strings.Join(m[1:], "+")
		switch {
		case upper[p.name]:
			id = strings.ToUpper(id)
		case p.name == "atcoder":
			id = oldTask(strings.ToLower(id))
		default:
			id = strings.ToLower(id)
		}
		return p.name + ":" + id
	}
	return ""
}

// oldTask folds the numbers of old contests to letters: arc001_1 is arc001_a.
func oldTask(id string) string {
	if i := strings.LastIndexByte(id, '_'); i >= 0 && i == len(id)-2 && id[i+1] >= '1' && id[i+1] <= '9' {
		return id[:i+1] + string(rune('a'+id[i+1]-'1'))
	}
	return id
}

// identity is one key of a problem.
type identity struct {
	key    string // with a prefix for its sort
	reason Reason // of a duplicate by this key
}

// identities lists the keys of a problem in the order of the rules; what it does not have is left out.
func identities(p *Problem) []identity {
	var out []identity
	if k := TextKey(p.Statement); k != "" {
		out = append(out, identity{"text:" + k, DuplicateText})
	}
	if k := URLKey(p.URL); k != "" {
		out = append(out, identity{"url:" + k, DuplicateURL})
	}
	if p.Platform != "" {
		out = append(out, identity{"id:" + p.Platform, DuplicatePlatformID})
	}
	return out
}
