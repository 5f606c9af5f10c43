package study

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/steadyrl/steady/internal/rng"
)

// oracle are the values of testdata/oracle.py.
type oracle struct {
	T     map[string]float64 `json:"t"`
	Cases []struct {
		Name  string `json:"name"`
		Seeds []struct {
			IDs    []string  `json:"ids"`
			Values []float64 `json:"values"`
		} `json:"seeds"`
		Means        []float64  `json:"means"`
		OverProblems [2]float64 `json:"over_problems"`
		OverSeeds    []float64  `json:"over_seeds"`
		Share        [2]float64 `json:"share"`
	} `json:"cases"`
}

func close8(a, b float64) bool { return math.Abs(a-b) < 1e-8 }

func TestStats_agreeWithTheOracle(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "oracle.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o oracle
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	if len(o.T) < 8 || len(o.Cases) < 7 {
		t.Fatalf("only %d quantiles and %d cases", len(o.T), len(o.Cases))
	}
	for text, want := range o.T {
		df, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tQuantile(df); math.Abs(got-want) > 1e-7 {
			t.Errorf("quantile of %d degrees of freedom: got %.10f, want %.10f", df, got, want)
		}
	}
	for _, c := range o.Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			var diff, right []sample
			for _, s := range c.Seeds {
				diff = append(diff, sample{s.IDs, s.Values})
				abs := make([]float64, len(s.Values))
				for i, v := range s.Values {
					abs[i] = math.Abs(v)
				}
				right = append(right, sample{s.IDs, abs})
			}
			if got := overProblems(diff); !close8(got.Low, c.OverProblems[0]) || !close8(got.High, c.OverProblems[1]) {
				t.Errorf("over problems: got %v, want %v", got, c.OverProblems)
			}
			if got := share(right); !close8(got.Low, c.Share[0]) || !close8(got.High, c.Share[1]) {
				t.Errorf("share: got %v, want %v", got, c.Share)
			}
			got, ok := overSeeds(c.Means, -10, 10)
			if ok != (c.OverSeeds != nil) || ok && (math.Abs(got.Low-c.OverSeeds[0]) > 1e-6 || math.Abs(got.High-c.OverSeeds[1]) > 1e-6) {
				t.Errorf("over seeds: got %v %v, want %v", got, ok, c.OverSeeds)
			}
		})
	}
}

// The quantiles of the tables in every textbook.
func TestTQuantile_ofTheTables(t *testing.T) {
	t.Parallel()
	for df, want := range map[int]float64{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 10: 2.228, 30: 2.042, 120: 1.980} {
		if got := tQuantile(df); math.Abs(got-want) > 5e-4 {
			t.Errorf("%d degrees of freedom: got %.4f, want %.3f", df, got, want)
		}
	}
}

// normal is a draw of the standard normal distribution.
func normal(s rng.Stream, i uint64) float64 {
	return math.Sqrt(-2*math.Log(1-s.Uniform(2*i))) * math.Cos(2*math.Pi*s.Uniform(2*i+1))
}

// Many studies are played in which the truth is known: two arms, seeds that differ, problems that are hard for both. The interval over seeds
// holds the expected difference of a new seed in 95 % of the studies, the one over problems that of these seeds, and the wider one
// no less; the problems of a seed are drawn from a pool, so that seeds share some.
func TestIntervals_coverTheTruth(t *testing.T) {
	t.Parallel()
	const studies, pool, problems = 600, 244, 64
	for _, c := range []struct {
		name      string
		seeds     int
		mean, dev float64 // of the arms' difference in logits, over seeds
	}{
		{"three seeds that agree", 3, 0.8, 0},
		{"three seeds that differ", 3, 0.8, 0.7},
		{"no difference, seeds differ", 3, 0, 0.7},
		{"eight seeds that differ", 8, 1.5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
			hard := make([]float64, pool)
			of := rng.New(5, rng.Corpus, "hard")
			for i := range hard {
				hard[i] = 1.5 * normal(of, uint64(i))
			}
			truth := 0.0 // over the pool and over seeds
			for k := range 400 {
				shift := c.mean + c.dev*normal(rng.New(5, rng.Corpus, "truth"), uint64(k))
				for _, h := range hard {
					truth += (sigmoid(h+shift) - sigmoid(h)) / pool / 400
				}
			}
			wide, student, fixed := 0, 0, 0
			for n := range studies {
				var seeds []sample
				var means []float64
				here := 0.0 // the truth of these seeds
				for s := range c.seeds {
					st := rng.New(5, rng.Corpus, c.name, n, s)
					shift := c.mean + c.dev*normal(st, 1000)
					for _, h := range hard {
						here += (sigmoid(h+shift) - sigmoid(h)) / pool / float64(c.seeds)
					}
					var x sample
					for i, p := range rng.New(5, rng.Data, c.name, n, s).Perm(pool)[:problems] {
						a, b := 0.0, 0.0
						if st.Uniform(uint64(2*i)) < sigmoid(hard[p]+shift) {
							a = 1
						}
						if st.Uniform(uint64(2*i+1)) < sigmoid(hard[p]) {
							b = 1
						}
						x.ids, x.values = append(x.ids, fmt.Sprint(p)), append(x.values, a-b)
					}
					seeds, means = append(seeds, x), append(means, x.mean())
				}
				pro := overProblems(seeds)
				stu, ok := overSeeds(means, -1, 1)
				if !ok {
					t.Fatal("no interval over seeds")
				}
				if pro.Around(here) {
					fixed++
				}
				if stu.Around(truth) {
					student++
				}
				if both(pro, stu).Around(truth) {
					wide++
				}
			}
			for name, got := range map[string]int{"over problems": fixed, "over seeds": student, "both": wide} {
				if share := float64(got) / studies; share < 0.93 {
					t.Errorf("%s: %.1f %% of the intervals hold the truth", name, 100*share)
				}
			}
			if wide < student {
				t.Errorf("the wider interval holds the truth in %d studies, the one over seeds in %d", wide, student)
			}
		})
	}
}
