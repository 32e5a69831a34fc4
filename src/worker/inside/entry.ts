/** The entry of every worker, thread or process. */
import { isMainThread } from 'node:worker_threads'
import { dropStartVariables } from '../../kit/index.ts'
import { serveRollouts } from './serve-rollouts.ts'
import { processLink, threadLink } from './supervisor-link.ts'

dropStartVariables()
await serveRollouts(isMainThread ? await processLink() : threadLink())
