package storetest

// changesFound are plays that have broken a limit in earlier runs.
var changesFound = []play{
	{25, []phase{
		{5, 50, 0, 300, tempo{5, 1, 5, false}, tempo{}, "", "", tempo{}},
		{100, 0, 0, 0, tempo{1, 10, 1, false}, tempo{}, "one", "shadow", tempo{9, 60, 7, false}},
	}},
	{181694, []phase{
		{58, 400, 0, 300, tempo{1, 10, 1, false}, tempo{}, "one", "rate", tempo{6, 10, 19, true}},
		{100, 0, 0, 0, tempo{16, 60, 2, false}, tempo{}, "one", "rate", tempo{1, 1, 5, true}},
	}},
	{4, []phase{
		{60, 0, 0, 300, tempo{18, 1, 7, false}, tempo{1, 60, 1, false}, "two", "quota", tempo{13, 10, 10, true}},
		{100, 0, 0, 0, tempo{1, 60, 1, false}, tempo{}, "one", "rate", tempo{3, 2, 2, false}},
	}},
	{1, []phase{
		{19, 400, 0, 300, tempo{10, 10, 4, false}, tempo{}, "two", "quota", tempo{6, 60, 3, true}},
		{100, 0, 0, 0, tempo{1, 10, 1, false}, tempo{8, 10, 6, true}, "two", "rate", tempo{30, 2, 10, true}},
	}},
	{1672, []phase{
		{3, 0, 30, 300, tempo{18, 1, 1, false}, tempo{9, 1, 9, false}, "one", "shadow", tempo{15, 20, 11, false}},
		{100, 0, 0, 0, tempo{1, 1, 1, false}, tempo{6, 60, 1, false}, "one", "quota", tempo{24, 2, 4, false}},
	}},
	{413009, []phase{
		{24, 0, 30, 300, tempo{4, 2, 3, false}, tempo{}, "", "", tempo{}},
		{6, 50, 0, 0, tempo{1, 2, 1, false}, tempo{9, 10, 1, false}, "", "", tempo{}},
		{100, 0, 0, 300, tempo{5, 10, 5, false}, tempo{}, "one", "rate", tempo{30, 2, 2, false}},
	}},
	{15, []phase{
		{2, 0, 0, 0, tempo{4, 60, 4, false}, tempo{}, "one", "rate", tempo{9, 10, 4, false}},
		{10, 0, 30, 300, tempo{1, 1, 1, false}, tempo{}, "one", "shadow", tempo{6, 10, 6, true}},
		{100, 0, 0, 0, tempo{1, 1, 1, false}, tempo{}, "", "", tempo{}},
	}},
	{4, []phase{
		{60, 50, 0, 300, tempo{8, 10, 8, false}, tempo{}, "one", "quota", tempo{6, 10, 5, false}},
		{45, 0, 0, 300, tempo{18, 1, 3, false}, tempo{}, "one", "rate", tempo{3, 10, 3, false}},
		{100, 0, 0, 0, tempo{1, 20, 1, false}, tempo{}, "one", "rate", tempo{16, 1, 8, true}},
	}},
	{1221, []phase{
		{25, 50, 0, 0, tempo{8, 1, 5, true}, tempo{}, "one", "rate", tempo{3, 1, 21, true}},
		{7, 400, 0, 0, tempo{9, 60, 9, false}, tempo{}, "two", "rate", tempo{4, 2, 4, false}},
		{51, 400, 0, 300, tempo{7, 10, 14, true}, tempo{}, "", "", tempo{}},
		{100, 0, 0, 0, tempo{1, 10, 1, false}, tempo{}, "one", "rate", tempo{28, 2, 6, false}},
	}},
	{0, []phase{
		{40, 0, 0, 0, tempo{1, 2, 1, false}, tempo{}, "two", "quota", tempo{6, 10, 21, true}},
		{40, 50, 0, 300, tempo{17, 10, 10, true}, tempo{}, "", "", tempo{}},
		{11, 0, 0, 0, tempo{2, 2, 2, true}, tempo{1, 2, 1, false}, "one", "rate", tempo{16, 1, 3, false}},
		{100, 0, 0, 0, tempo{5, 2, 5, false}, tempo{}, "one", "rate", tempo{4, 10, 4, false}},
	}},
	{3, []phase{
		{16, 400, 0, 0, tempo{8, 60, 8, false}, tempo{7, 20, 4, false}, "", "", tempo{}},
		{1, 0, 0, 0, tempo{20, 10, 1, false}, tempo{}, "one", "rate", tempo{7, 1, 6, false}},
		{11, 400, 0, 300, tempo{3, 10, 3, false}, tempo{}, "one", "rate", tempo{3, 2, 3, false}},
		{100, 400, 0, 0, tempo{2, 60, 2, false}, tempo{1, 2, 1, false}, "two", "rate", tempo{1, 1, 1, false}},
	}},
	{2, []phase{
		{10, 0, 0, 0, tempo{3, 10, 4, true}, tempo{1, 10, 1, false}, "one", "rate", tempo{25, 10, 5, false}},
		{2, 400, 30, 300, tempo{12, 1, 3, true}, tempo{}, "one", "rate", tempo{25, 2, 16, false}},
		{28, 50, 0, 0, tempo{1, 10, 1, false}, tempo{}, "one", "rate", tempo{4, 2, 4, false}},
		{100, 0, 0, 0, tempo{1, 2, 2, true}, tempo{}, "one", "rate", tempo{3, 10, 2, true}},
	}},
	{1, []phase{
		{12, 0, 30, 300, tempo{15, 1, 8, false}, tempo{}, "one", "rate", tempo{4, 1, 4, false}},
		{0, 0, 0, 0, tempo{19, 60, 3, false}, tempo{6, 60, 1, true}, "one", "rate", tempo{10, 2, 8, false}},
		{60, 50, 0, 300, tempo{1, 2, 1, false}, tempo{}, "one", "shadow", tempo{7, 60, 8, true}},
		{100, 0, 0, 0, tempo{1, 10, 1, false}, tempo{}, "one", "rate", tempo{1, 2, 3, true}},
	}},
	{382, []phase{
		{0, 400, 0, 0, tempo{7, 10, 7, false}, tempo{}, "one", "shadow", tempo{4, 20, 4, false}},
		{4, 0, 0, 0, tempo{11, 10, 18, true}, tempo{7, 10, 1, false}, "one", "rate", tempo{30, 10, 6, false}},
		{4, 0, 30, 300, tempo{3, 1, 9, true}, tempo{}, "two", "rate", tempo{1, 2, 1, false}},
		{100, 0, 0, 0, tempo{1, 60, 1, false}, tempo{}, "one", "rate", tempo{3, 10, 2, false}},
	}},
	{0, []phase{
		{8, 0, 0, 300, tempo{17, 2, 9, false}, tempo{}, "", "", tempo{}},
		{100, 0, 0, 0, tempo{6, 60, 9, true}, tempo{}, "one", "rate", tempo{3, 2, 21, true}},
	}},
	{93, []phase{
		{49, 0, 0, 300, tempo{20, 60, 2, false}, tempo{}, "", "", tempo{}},
		{100, 0, 0, 0, tempo{15, 60, 2, true}, tempo{}, "two", "rate", tempo{9, 10, 12, true}},
	}},
	{4, []phase{
		{29, 0, 0, 300, tempo{4, 1, 4, false}, tempo{}, "one", "rate", tempo{30, 2, 6, false}},
		{100, 0, 0, 0, tempo{14, 10, 13, true}, tempo{5, 10, 8, true}, "", "", tempo{}},
	}},
	{1, []phase{
		{48, 400, 0, 300, tempo{7, 10, 2, true}, tempo{}, "two", "quota", tempo{24, 20, 17, true}},
		{100, 400, 0, 0, tempo{8, 2, 1, true}, tempo{3, 10, 3, true}, "", "", tempo{}},
	}},
	{0, []phase{
		{60, 0, 0, 300, tempo{17, 2, 7, true}, tempo{}, "two", "rate", tempo{16, 2, 4, false}},
		{100, 0, 0, 0, tempo{1, 2, 1, true}, tempo{}, "one", "rate", tempo{15, 1, 3, true}},
	}},
	{0, []phase{
		{6, 50, 0, 300, tempo{19, 2, 4, true}, tempo{}, "one", "shadow", tempo{24, 1, 6, true}},
		{100, 0, 0, 0, tempo{7, 10, 6, true}, tempo{}, "one", "rate", tempo{3, 2, 5, true}},
	}},
	{4, []phase{
		{20, 0, 0, 300, tempo{11, 10, 6, true}, tempo{}, "one", "rate", tempo{3, 10, 19, true}},
		{100, 400, 0, 0, tempo{9, 60, 6, true}, tempo{}, "one", "rate", tempo{3, 1, 7, true}},
	}},
	{414, []phase{
		{45, 400, 0, 300, tempo{17, 2, 13, false}, tempo{}, "one", "shadow", tempo{1, 10, 5, true}},
		{100, 50, 0, 0, tempo{16, 10, 1, true}, tempo{2, 10, 1, true}, "", "", tempo{}},
	}},
	{3, []phase{
		{3, 400, 0, 0, tempo{20, 1, 7, false}, tempo{}, "one", "shadow", tempo{19, 20, 14, false}},
		{100, 400, 0, 0, tempo{2, 10, 10, true}, tempo{}, "one", "rate", tempo{1, 1, 1, false}},
	}},
	{0, []phase{
		{18, 0, 0, 300, tempo{9, 10, 2, false}, tempo{}, "two", "quota", tempo{30, 20, 19, true}},
		{100, 0, 0, 0, tempo{6, 10, 2, true}, tempo{}, "one", "shadow", tempo{21, 10, 3, false}},
	}},
	{57, []phase{
		{60, 50, 0, 300, tempo{20, 20, 1, false}, tempo{4, 10, 10, true}, "", "", tempo{}},
		{100, 0, 0, 0, tempo{2, 1, 7, true}, tempo{3, 10, 9, true}, "one", "rate", tempo{16, 10, 8, true}},
	}},
	{3, []phase{
		{14, 400, 0, 0, tempo{2, 1, 2, false}, tempo{9, 1, 4, true}, "one", "rate", tempo{27, 10, 19, false}},
		{100, 400, 0, 0, tempo{9, 10, 3, false}, tempo{7, 20, 3, true}, "", "", tempo{}},
	}},
	// In these plays memory and Redis had not forgotten the same keys.
	{1, []phase{
		{0, 0, 0, 0, tempo{1, 1, 1, true}, tempo{1, 1, 1, true}, "one", "rate", tempo{1, 1, 2, true}},
		{22, 0, 30, 0, tempo{6, 2, 6, false}, tempo{}, "two", "rate", tempo{19, 60, 14, false}},
		{100, 0, 0, 0, tempo{19, 20, 14, true}, tempo{18, 60, 10, false}, "", "", tempo{}},
	}},
	{2, []phase{
		{1, 0, 0, 0, tempo{1, 1, 1, true}, tempo{}, "one", "rate", tempo{1, 1, 2, true}},
		{51, 400, 0, 0, tempo{20, 10, 6, true}, tempo{}, "two", "rate", tempo{9, 20, 7, false}},
		{100, 400, 0, 300, tempo{2, 10, 2, false}, tempo{}, "one", "quota", tempo{4, 10, 4, false}},
	}},
	{14091, []phase{
		{0, 0, 0, 300, tempo{1, 10, 1, false}, tempo{}, "one", "quota", tempo{15, 60, 3, true}},
		{56, 0, 0, 0, tempo{1, 10, 1, false}, tempo{}, "one", "rate", tempo{3, 10, 3, true}},
		{1, 0, 0, 0, tempo{3, 60, 3, false}, tempo{}, "one", "rate", tempo{1, 1, 2, true}},
		{100, 0, 0, 300, tempo{2, 1, 2, false}, tempo{}, "one", "rate", tempo{3, 2, 3, true}},
	}},
	{90184054870, []phase{
		{55, 0, 30, 300, tempo{14, 2, 3, true}, tempo{}, "one", "rate", tempo{3, 60, 3, false}},
		{2, 400, 0, 0, tempo{11, 2, 2, true}, tempo{}, "two", "rate", tempo{9, 10, 3, false}},
		{100, 400, 0, 0, tempo{3, 2, 2, false}, tempo{}, "two", "shadow", tempo{12, 1, 19, true}},
	}},
}
