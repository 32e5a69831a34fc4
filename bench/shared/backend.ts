/** The backend process of a benchmark: the simulator as a server. Prints its URL, ends on SIGTERM. */
import { SimulatorServer } from '../../src/simulator/index.ts'

const options = JSON.parse(process.argv[2] ?? '{}') as Record<string, unknown>
const server = await SimulatorServer.start(options)
process.once('SIGTERM', () => void server.close().then(() => process.exit(0)))
console.log(JSON.stringify({ url: server.url }))
