export { type GymRequest, readRow } from './read-row.ts'
