/** Loaded first, with `--import`: makes `import 'millrace'` mean the sources here, where no built package is installed. */
import { registerResolver } from '../src/env/index.ts'

registerResolver()
