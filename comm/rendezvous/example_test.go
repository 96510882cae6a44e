package rendezvous_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weftgo/weft/comm/rendezvous"
)

// What each process of a job does. Started by weft launch, torchrun, mpirun or srun there are more of them, and each
// prints what all have said; started by hand, as here, it is the only one.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	job, err := rendezvous.FromEnv(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := rendezvous.Join(ctx, job, rendezvous.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := rendezvous.Exchange(ctx, client, "hello", job.Rank, job.Size, fmt.Appendf(nil, "process %d of %d", job.Rank, job.Size))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, said := range all {
		fmt.Println(string(said))
	}
	if err := client.Leave(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// process 0 of 1
}
