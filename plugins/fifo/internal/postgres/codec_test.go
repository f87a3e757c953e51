package postgres_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
)

// What was encoded is decoded as it was.
func TestCommandsSurviveTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(3, seed))
		var commands []postgres.Command
		for i := range dice.IntN(40) {
			commands = append(commands, randomCommand(dice, i))
		}
		got, err := postgres.Decode(postgres.Encode(commands))
		if err != nil || !reflect.DeepEqual(got, commands) {
			t.Fatalf("seed %d: %v\ngot  %+v\nwant %+v", seed, err, got, commands)
		}
	}
}

// Whatever the log holds is commands or an error, and what is commands is encoded to
// commands that are the same.
func FuzzDecode(f *testing.F) {
	dice := rand.New(rand.NewPCG(4, 4))
	for i := range 60 {
		f.Add(postgres.Encode([]postgres.Command{randomCommand(dice, i), randomCommand(dice, i)}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, err := postgres.Decode(data)
		if err != nil {
			return
		}
		once := postgres.Encode(commands)
		again, err := postgres.Decode(once)
		if err != nil || !bytes.Equal(postgres.Encode(again), once) {
			t.Fatalf("%+v became %+v, %v", commands, again, err)
		}
	})
}
