package plan

// Toxic is a disturbance of the connections between weir and the api.
type Toxic struct{ name, JSON string }

// toxics are the possible disturbances. Those that delay requests stay within weir's jitter. The others affect requests
// or answers, on all connections or on half of them.
var toxics = []Toxic{
	{"requests late", `{"name":"t","type":"latency","stream":"upstream","attributes":{"latency":40,"jitter":40}}`},
	{"answers late", `{"name":"t","type":"latency","stream":"downstream","attributes":{"latency":300,"jitter":200}}`},
	{"answers slow", `{"name":"t","type":"bandwidth","stream":"downstream","attributes":{"rate":1}}`},
	{"answers in pieces", `{"name":"t","type":"slicer","stream":"downstream","attributes":{"average_size":20,"size_variation":10,"delay":20000}}`},
	{"answers swallowed", `{"name":"t","type":"timeout","stream":"downstream","toxicity":0.5,"attributes":{"timeout":0}}`},
	{"requests swallowed", `{"name":"t","type":"timeout","stream":"upstream","toxicity":0.5,"attributes":{"timeout":500}}`},
	{"connections reset at the answer", `{"name":"t","type":"reset_peer","stream":"downstream","toxicity":0.5,"attributes":{"timeout":0}}`},
	{"connections reset at the request", `{"name":"t","type":"reset_peer","stream":"upstream","toxicity":0.5,"attributes":{"timeout":0}}`},
	{"answers cut", `{"name":"t","type":"limit_data","stream":"downstream","toxicity":0.5,"attributes":{"bytes":90}}`},
	{"connections closed late", `{"name":"t","type":"slow_close","stream":"downstream","attributes":{"delay":500}}`},
}
