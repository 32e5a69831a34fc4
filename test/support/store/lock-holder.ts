/** Opens the run in the folder given, says so, and stays until it is killed. */
import { writeSync } from 'node:fs'
import { RunStore } from '../../../src/store/index.ts'
import { newRun } from './fixtures.ts'

const store = await RunStore.open({ folder: process.argv[2] ?? '', create: newRun() })
writeSync(1, `holding ${store.folder}\n`)
