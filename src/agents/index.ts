export { toolLoop } from './tool-loop.ts'
