package alltoall_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/ep/eptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	x, err := alltoall.New(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	return x, nil
}

func TestConformance(t *testing.T) { eptest.TestExchanger(t, create) }
