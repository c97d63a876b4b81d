module github.com/kvbm/libkvbm-go

go 1.21
