/** The backends of a benchmark, in one process: a simulator's server for each set of options. Prints their URLs, ends on SIGTERM. */
import { SimulatorServer } from '../../src/simulator/index.ts'

const options = JSON.parse(process.argv[2] ?? '[]') as Record<string, unknown>[]
const servers = await Promise.all(options.map((each) => SimulatorServer.start(each)))
process.once('SIGTERM', () => process.exit(0))
console.log(JSON.stringify({ urls: servers.map(({ url }) => url) }))
