package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// numbers are the mappers of flags whose values are numbers and times: what is none is refused in words for a person, NaN and infinities too.
func numbers() []kong.Option {
	whole := numberMapper("a whole number", func(s string, to reflect.Value) error {
		n, err := strconv.ParseInt(s, 0, to.Type().Bits())
		if err == nil {
			to.SetInt(n)
		}
		return err
	})
	positive := numberMapper("a whole number that is not negative", func(s string, to reflect.Value) error {
		n, err := strconv.ParseUint(s, 0, to.Type().Bits())
		if err == nil {
			to.SetUint(n)
		}
		return err
	})
	real := numberMapper("a number", func(s string, to reflect.Value) error {
		v, err := strconv.ParseFloat(s, to.Type().Bits())
		if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			err = strconv.ErrRange
		}
		if err == nil {
			to.SetFloat(v)
		}
		return err
	})
	span := numberMapper("a time with its unit, such as 90s, 5m or 1h30m", func(s string, to reflect.Value) error {
		d, err := time.ParseDuration(s)
		if err == nil {
			to.SetInt(int64(d))
		}
		return err
	})
	return []kong.Option{
		kong.KindMapper(reflect.Int, whole), kong.KindMapper(reflect.Int64, whole), kong.KindMapper(reflect.Uint64, positive),
		kong.KindMapper(reflect.Float64, real), kong.TypeMapper(reflect.TypeFor[time.Duration](), span),
	}
}

// numberMapper reads values by parse; want says what they are.
func numberMapper(want string, parse func(s string, to reflect.Value) error) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		t, err := ctx.Scan.PopValue(want)
		if err != nil {
			return err
		}
		text := fmt.Sprint(t.Value)
		if parse(text, target) != nil {
			return fmt.Errorf("want %s, got %q", want, text)
		}
		return nil
	}
}
