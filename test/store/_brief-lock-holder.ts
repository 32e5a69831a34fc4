/** Has the lock of the folder given for a second, as one who reads the run and brings in its spool, and says so. */
import { writeSync } from 'node:fs'
import { RunLock } from '../../src/store/_run-lock.ts'

const lock = RunLock.acquire(process.argv[2] ?? '', 'take-in')
writeSync(1, 'holding\n')
setTimeout(() => lock[Symbol.dispose](), 1_000)
