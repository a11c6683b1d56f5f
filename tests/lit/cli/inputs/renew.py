"""Makes a record the newest one, of a schedule that no search finds: renew.py FILE warm|cold CENTURY ROWS"""

import re
import sys

path, caches, century, rows = sys.argv[1:]
mark = f"    cache: {caches}\n"
before, after = open(path).read().split(mark, 1)
after = re.sub(r"date: '\d\d", f"date: '{century}", after, count=1)
after = re.sub(r"(best: \{schedule: '[^']*,rows=)\d+", rf"\g<1>{rows}", after, count=1)
open(path, "w").write(before + mark + after)
